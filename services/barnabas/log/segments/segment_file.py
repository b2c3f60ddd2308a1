"""Files by descriptor: positioned reads and writes, durable small files.

A `SegmentFile` closes its descriptor when the last reference to it goes. So a reader that still holds one, in this
thread or another, can finish while the segment is deleted or its descriptor is evicted; a descriptor number is
never reused under it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final, Literal, overload

from barnabas.records.batch import Buffer

_WARM_READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is larger than this holds the event loop up for too long even when it is in memory."""

_SMALL_FILE_BYTES: Final = 4 * 1024
"""Checkpoints and the like fit one read of this; a partition has three such files, a node thousands of partitions."""

_SYNCFS: Final = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""`syncfs(2)`, which the standard library does not offer; the interpreter lets other threads run meanwhile."""

_PARTS_MAX: Final = os.sysconf("SC_IOV_MAX")
"""Buffers that the system takes in one write (1,024 on Linux)."""

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class SyncError(OSError):
    """The disk did not confirm what it was asked to make durable: any of it may be lost.

    Asking again proves nothing, for Linux reports a failed write-back once and then holds the page for written.
    """


class SegmentFile:
    """One open file of a segment; owns the descriptor."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        """Open the file; with `create` it must not be there yet. Raises OSError."""
        self.fd = -1
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def fileno(self) -> int:
        return self.fd

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    @overload
    def read(self, position: int, length: int, *, nowait: Literal[False] = False) -> bytes: ...
    @overload
    def read(self, position: int, length: int, *, nowait: bool) -> bytes | memoryview: ...
    def read(self, position: int, length: int, *, nowait: bool = False) -> bytes | memoryview:
        """Up to `length` bytes from `position`; fewer only at the end of the file.

        With `nowait`, raises BlockingIOError when the bytes are not in memory (or this file system cannot say),
        or so many that a thread should read them.
        """
        if not nowait:
            return os.pread(self.fd, length, position)
        if length > _WARM_READ_BYTES_MAX:
            raise BlockingIOError(errno.EAGAIN, "too much to read at once")
        # One copy: `pread` would have to be told first, by another read, that the bytes are in memory.
        data = bytearray(length)
        try:
            count = os.preadv(self.fd, [data], position, _RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise BlockingIOError(errno.EAGAIN, "the log is not in memory") from error
            raise
        if count < length and position + count < self.size():
            raise BlockingIOError(errno.EAGAIN, "only a part of the log is in memory")
        return memoryview(data)[:count]

    def write(self, parts: Sequence[Buffer], position: int, length: int) -> None:
        """Write all `parts` (`length` bytes together) at `position`, the end of what counts.

        Raises OSError; some of the bytes may then stand in the file and have to be cut off by `truncate`. A short
        write is tried again from where it stopped, which names the reason (a full disk, a limit).
        """
        if len(parts) > _PARTS_MAX:
            for start in range(0, len(parts), _PARTS_MAX):
                piece = parts[start : start + _PARTS_MAX]
                size = sum(map(len, piece))
                self.write(piece, position, size)
                position += size
            return
        written = os.pwritev(self.fd, parts, position)
        if written != length:
            self._write_rest(b"".join(parts), written, position)

    def _write_rest(self, data: bytes, written: int, position: int) -> None:
        view = memoryview(data)
        while written < len(data):
            count = os.pwrite(self.fd, view[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            written += count

    def expect_read(self, position: int, length: int) -> None:
        """Have the disk fetch these bytes while the caller does something else."""
        os.posix_fadvise(self.fd, position, length, os.POSIX_FADV_WILLNEED)

    def forget_cached(self) -> None:
        """Let reads see what the disk has: pages that a failed sync left in memory as if written are dropped.

        Pages not yet written stay, and the next `sync` says whether they could be.
        """
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        """Make the data durable. Raises SyncError."""
        with _sync_errors():
            os.fdatasync(self.fd)


@contextlib.contextmanager
def _sync_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SyncError(error.errno, f"sync failed: {error.strerror}") from error


def read_whole(path: str) -> bytes:
    """All of a small file's bytes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL_FILE_BYTES)
        if len(data) < _SMALL_FILE_BYTES:
            return data
        parts = [data]
        while more := os.read(fd, _SMALL_FILE_BYTES):
            parts.append(more)
        return b"".join(parts)
    finally:
        os.close(fd)


def write_atomically(path: str, data: bytes, *, sync: bool) -> None:
    """Replace the file so that a reader sees the old or the new content, and with `sync` a power cut does too.

    Raises OSError (SyncError when it was the sync); nothing temporary is left then, and the old content stands
    unless it was the sync of the directory that failed.
    """
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            _write_all(fd, data)
            if sync:
                # Before the rename: a power cut must not find the new name with nothing behind it.
                with _sync_errors():
                    os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if sync:
        sync_directory(os.path.dirname(path))


def write_at(path: str, position: int, data: bytes) -> None:
    """Write `data` at `position` and cut the file behind it; creates the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.lseek(fd, position, os.SEEK_SET)
        _write_all(fd, data)
        os.ftruncate(fd, position + len(data))
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_path(path: str) -> None:
    """Make a file or a directory durable; one that is gone in the meantime needs nothing. Raises SyncError when
    the disk did not confirm it, another OSError when it could not be asked.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with _sync_errors():
            os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(path: str) -> None:
    """Make all that memory holds for the file system of `path` durable, in one pass. Raises OSError.

    Thousands of files are then clean, and the sync of each, which alone can say whether that file is whole, has
    nothing to write. Where the system has no such call this does nothing.
    """
    if _SYNCFS is None:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _SYNCFS(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)


def sync_directory(path: str) -> None:
    """Make renames, creations and removals in a directory durable."""
    sync_path(path)


def remove_quietly(path: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
