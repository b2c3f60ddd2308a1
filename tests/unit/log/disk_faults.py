"""Disks of which the test chooses a call, by its number, and what becomes of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.kernel.files import Files

CALLS = (
    "open",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "ftruncate",
    "fstat",
    "fdatasync",
    "fsync",
    "syncfs",
    "stat",
    "utime",
    "listdir",
    "list_directories",
    "makedirs",
    "rename",
    "unlink",
)
"""Those by which the log changes or asks anything on disk. Closing is left out: a descriptor is closed when its last
user drops it, where nobody could be told."""

SYNCS = ("fdatasync", "fsync", "syncfs")


class FaultyFiles:
    """Files of which one call fails, once: it counts calls while it is armed, and refuses the one with the number.

    Syncs do nothing where `real` is a real disk: they would prove nothing, and take their time.
    """

    def __init__(self, real: Files) -> None:
        self.calls = 0
        self.refused = ""
        """Which call was refused."""
        self._real = real
        self._fails_at = -1
        self._code = 0
        self._has_room = True

    def __getattr__(self, name: str) -> Any:
        call = (lambda _: None) if name in SYNCS else getattr(self._real, name)
        made = self._counted(name, call) if name in CALLS else call
        setattr(self, name, made)
        return made

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if self._fails_at >= 0:
                self.calls += 1
                if self.calls == self._fails_at:
                    self.refused = name
                    raise OSError(self._code, os.strerror(self._code))
            if not self._has_room and self._takes_room(name, *arguments):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments)

        return counted

    def _takes_room(self, name: str, *arguments: Any) -> bool:
        if name == "open":
            path, flags, *_ = arguments
            return bool(flags & os.O_CREAT) and not os.path.exists(path)
        return name in ("pwrite", "pwritev")

    @contextmanager
    def without_room(self) -> Iterator[None]:
        """In the block the disk is full: what is there may be read, renamed and removed."""
        self._has_room = False
        try:
            yield
        finally:
            self._has_room = True

    @contextmanager
    def failing(self, call: int, code: int) -> Iterator[None]:
        """Refuse the `call`-th system call in the block, from 1, with `code`."""
        self.calls, self.refused = 0, ""
        self._fails_at, self._code = call, code
        try:
            yield
        finally:
            self._fails_at = -1
