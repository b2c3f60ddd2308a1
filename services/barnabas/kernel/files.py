"""Files as an argument: what is kept on disk asks for it here, and nowhere else.

The calls are the system's own, by their names: whoever writes a log has to know what each of them promises, and a disk
that fails one of them fails the same one everywhere. With `SystemFiles` they are the system's; with `MemoryFiles`
(`kernel/memory_files.py`) a disk that can lose its power.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_SYNCFS: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""`syncfs(2)`, which the standard library does not offer; the interpreter lets other threads run meanwhile."""

NAME_BYTES_MAX: Final = 255
"""Longest name in a directory (Linux's NAME_MAX)."""


class FileStatus(Protocol):
    """What is asked of a file's `os.stat_result`."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...


class SpaceStatus(Protocol):
    """What is asked of a file system's `os.statvfs_result`."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...


class Files(Protocol):
    """A file system. Each call raises OSError as that of the same name in `os` does, and may block."""

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...
    def preadv(
        self, fd: int, buffers: Sequence[WriteableBuffer], position: int, flags: int = 0, /
    ) -> int: ...
    def pwrite(self, fd: int, data: ReadableBuffer, position: int, /) -> int: ...
    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], position: int, /) -> int: ...
    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def fstat(self, fd: int, /) -> FileStatus: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def syncfs(self, fd: int, /) -> None:
        """Make all that memory holds for the file system durable. Where there is no such call it does nothing."""

    def posix_fadvise(self, fd: int, position: int, length: int, advice: int, /) -> None: ...
    def flock(self, fd: int, operation: int, /) -> None:
        """Hold the file against other processes until it is closed, or the process ends in whatever way."""

    def stat(self, path: str, /) -> FileStatus: ...
    def statvfs(self, path: str, /) -> SpaceStatus: ...
    def utime(self, path: str, modified_ns: int, /) -> None:
        """Set when a file was changed last."""

    def listdir(self, path: str, /) -> list[str]: ...
    def list_directories(self, path: str, /) -> list[str]:
        """The names of the directories in a directory."""
        ...

    def makedirs(self, path: str, /) -> None:
        """Create a directory and those that it is to be in, as far as they are not there."""

    def rename(self, old: str, new: str, /) -> None:
        """Replaces a file that has the new name."""

    def unlink(self, path: str, /) -> None: ...
    def remove_tree(self, path: str, /) -> None:
        """Remove a directory and what is in it, as far as that is possible; raises nothing."""


class SystemFiles:
    """The machine's own."""

    def __init__(self) -> None:
        # An attribute of the instance is found six times faster, and these are asked for by every request.
        for name in ("pread", "preadv", "pwritev"):
            setattr(self, name, getattr(os, name))

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    fstat = staticmethod(os.fstat)
    fdatasync = staticmethod(os.fdatasync)
    fsync = staticmethod(os.fsync)
    posix_fadvise = staticmethod(os.posix_fadvise)
    flock = staticmethod(fcntl.flock)
    stat = staticmethod(os.stat)
    statvfs = staticmethod(os.statvfs)
    listdir = staticmethod(os.listdir)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)

    def syncfs(self, fd: int, /) -> None:
        if _SYNCFS is not None and _SYNCFS(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def utime(self, path: str, modified_ns: int, /) -> None:
        os.utime(path, ns=(modified_ns, modified_ns))

    def list_directories(self, path: str, /) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def makedirs(self, path: str, /) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str, /) -> None:
        shutil.rmtree(path, ignore_errors=True)
