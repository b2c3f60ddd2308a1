"""Files by descriptor: positioned reads and writes.

A `SegmentFile` closes its descriptor when the last reference to it goes. So a reader that still holds one, in this
thread or another, can finish while the segment is deleted or its descriptor is evicted; a descriptor number is
never reused under it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from typing import Final, Literal, overload

from barnabas.kernel.files import Files
from barnabas.log.small_files import SyncError, sync_errors
from barnabas.records.batch import Buffer

_WARM_READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is larger than this holds the event loop up for too long even when it is in memory."""

_PARTS_MAX: Final = os.sysconf("SC_IOV_MAX")
"""Buffers that the system takes in one write (1,024 on Linux)."""

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class SegmentFile:
    """One open file of a segment; owns the descriptor, and whether there is something to sync."""

    __slots__ = ("_failed", "_files", "_is_dirty", "_syncing", "fd", "path")

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        """Open the file; with `create` it must not be there yet. Raises OSError."""
        self.fd = -1
        self._files = files
        self._is_dirty = True  # nobody knows what was done to it before
        self._syncing = threading.Lock()
        self._failed: SyncError | None = None
        self.path = path
        self.fd = self._files.open(
            path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o644
        )

    def __del__(self) -> None:
        if self.fd >= 0:
            self._files.close(self.fd)
            self.fd = -1

    def fileno(self) -> int:
        return self.fd

    def size(self) -> int:
        return self._files.fstat(self.fd).st_size

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
            return self._files.pread(self.fd, length, position)
        if length > _WARM_READ_BYTES_MAX:
            raise BlockingIOError(errno.EAGAIN, "too much to read at once")
        # One copy: `pread` would have to be told first, by another read, that the bytes are in memory.
        data = bytearray(length)
        try:
            count = self._files.preadv(self.fd, [data], position, _RWF_NOWAIT)
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
        try:
            written = self._files.pwritev(self.fd, parts, position)
            if written != length:
                self._write_rest(b"".join(parts), written, position)
        finally:
            # Afterwards: a sync in another thread that began before the write must not count for it.
            self._is_dirty = True

    def _write_rest(self, data: bytes, written: int, position: int) -> None:
        view = memoryview(data)
        while written < len(data):
            count = self._files.pwrite(self.fd, view[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            written += count

    def expect_read(self, position: int, length: int) -> None:
        """Have the disk fetch these bytes while the caller does something else."""
        self._files.posix_fadvise(self.fd, position, length, os.POSIX_FADV_WILLNEED)

    def forget_cached(self) -> None:
        """Let reads see what the disk has: pages that a failed sync left in memory as if written are dropped.

        Pages not yet written stay, and the next `sync` says whether they could be.
        """
        self._files.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        try:
            self._files.ftruncate(self.fd, size)
        finally:
            self._is_dirty = True

    def sync(self) -> None:
        """Make the data durable, if it is not since the last time; a sync in another thread is waited for. Raises
        SyncError, once it has failed each time: the system says so once.

        What is being written in another thread meanwhile is left for the next time.
        """
        with self._syncing:
            if self._failed is not None:
                raise self._failed
            if not self._is_dirty:
                return
            self._is_dirty = False
            try:
                with sync_errors():
                    self._files.fdatasync(self.fd)
            except BaseException as error:
                self._is_dirty = True
                self._failed = error if isinstance(error, SyncError) else None
                raise
