"""A disk that refuses one system call, or that lost what a failed sync was about."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SYSTEM_CALLS = (
    "open",
    "pwritev",
    "pwrite",
    "write",
    "ftruncate",
    "fdatasync",
    "fsync",
    "rename",
    "replace",
    "unlink",
    "stat",
    "fstat",
    "listdir",
    "utime",
    "pread",
    "read",
    "preadv",
)
"""Those by which the log changes or asks anything on disk. Closing is left out: a descriptor is closed when its last
user drops it, where nobody could be told."""

SYNCS = ("fdatasync", "fsync")


class FaultyDisk:
    """Counts system calls while it is armed, and refuses one of them once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.refused = ""
        """Which call was refused."""
        self._fails_at = -1
        self._code = 0
        for name in SYSTEM_CALLS:
            # Syncing for real would prove nothing, and take its time.
            real = (lambda _: None) if name in SYNCS else getattr(os, name)
            patch.setattr(os, name, self._wrapped(name, real))
        patch.setattr(builtins, "open", self._wrapped("open", builtins.open))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._fails_at >= 0:
                self.calls += 1
                if self.calls == self._fails_at:
                    self.refused = name
                    raise OSError(self._code, os.strerror(self._code))
            return real(*arguments, **named)

        return call

    @contextmanager
    def failing(self, call: int, code: int) -> Iterator[None]:
        """Refuse the `call`-th system call in the block, from 1, with `code`."""
        self.calls, self.refused = 0, ""
        self._fails_at, self._code = call, code
        try:
            yield
        finally:
            self._fails_at = -1
