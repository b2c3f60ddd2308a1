"""How memory is kept: when Python looks for garbage, and what the C library does with what is free.

The C library: a service that moves record batches must not return it to the kernel each time.

A megabyte that is freed to the kernel and asked for again is mapped, cleared and faulted in page by page: 1.1 ms,
against 0.05 ms for a megabyte that was kept. By default glibc does that for every large block, and it does it to
bytes, bytearrays, gRPC's slices and protobuf's messages alike.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BLOCK_BYTES_MAX: Final = 32 * 1024 * 1024
"""Smaller blocks come from the heap; the largest value that glibc takes."""

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may lie free at the end of the heap before it goes back to the kernel."""


@contextmanager
def collection_put_off() -> Iterator[None]:
    """No search for garbage while something large is built that stays, nor later in what there is by then: walking over
    it again and again doubles what opening 10,000 logs takes, and holds up the event loop for half a second. For work
    that ends and that leaves no cycles behind; what is counted by references alone is freed as always.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def keep_freed_memory() -> None:
    """Have freed memory kept for the next batch; does nothing where the C library is not glibc."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
