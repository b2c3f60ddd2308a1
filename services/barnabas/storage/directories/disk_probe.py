"""Whether a log directory's disk takes what is written: tried out with a file that nobody else sees."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from barnabas.kernel.files import Files

PROBE_NAME: Final = ".disk-probe"

PROBE_BYTES: Final = 1024 * 1024
"""As much as the largest append has by default (message.max.bytes)."""


def write_probe(files: Files, log_dir: str) -> None:
    """Write and sync a file in the directory `log_dir`; nothing of it is left, whatever happens. For a thread.

    Raises OSError: the disk refuses.
    """
    path = f"{log_dir}/{PROBE_NAME}"
    fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        files.unlink(path)
        content, written = memoryview(_incompressible()), 0
        while written < len(content):
            written += files.pwrite(fd, content[written:], written)
        files.fdatasync(fd)
    finally:
        files.close(fd)


def _incompressible() -> bytes:
    """There are file systems that need no room for zeros."""
    return hashlib.shake_128(PROBE_NAME.encode()).digest(PROBE_BYTES)
