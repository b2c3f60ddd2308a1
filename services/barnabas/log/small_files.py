"""Files by name: small ones read and replaced as a whole, syncs that say what they have confirmed, removal."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from barnabas.kernel.files import Files

_SMALL_FILE_BYTES: Final = 4 * 1024
"""Checkpoints and the like fit one read of this; a partition has three such files, a node thousands of partitions."""


class SyncError(OSError):
    """The disk did not confirm what it was asked to make durable: any of it may be lost.

    Asking again proves nothing, for Linux reports a failed write-back once and then holds the page for written.
    """


@contextlib.contextmanager
def sync_errors() -> Iterator[None]:
    """What a sync in the block raises, as SyncError."""
    try:
        yield
    except OSError as error:
        raise SyncError(error.errno, f"sync failed: {error.strerror}") from error


def not_there(path: str) -> FileNotFoundError:
    """What says that there is no file of the name."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def exists(files: Files, path: str) -> bool:
    """Whether there is a file or a directory of the name. Raises OSError when the disk does not say."""
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def is_directory(files: Files, path: str) -> bool:
    """Whether the name is known to be a directory's."""
    try:
        return stat.S_ISDIR(files.stat(path).st_mode)
    except OSError:
        return False


def read_whole(files: Files, path: str) -> bytes:
    """All of a small file's bytes. Raises OSError."""
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = files.pread(fd, _SMALL_FILE_BYTES, 0)
        if len(data) < _SMALL_FILE_BYTES:
            return data
        parts, position = [data], len(data)
        while more := files.pread(fd, _SMALL_FILE_BYTES, position):
            parts.append(more)
            position += len(more)
        return b"".join(parts)
    finally:
        files.close(fd)


def write_atomically(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Replace the file so that a reader sees the old or the new content, and with `sync` a power cut does too.

    Raises OSError (SyncError when it was the sync); nothing temporary is left then, and the old content stands
    unless it was the sync of the directory that failed.
    """
    temporary = path + ".tmp"
    fd = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            _write_all(files, fd, data, 0)
            if sync:
                # Before the rename: a power cut must not find the new name with nothing behind it.
                with sync_errors():
                    files.fsync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    if sync:
        sync_directory(files, os.path.dirname(path))


def write_at(files: Files, path: str, position: int, data: bytes) -> None:
    """Write `data` at `position` and cut the file behind it; creates the file."""
    fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _write_all(files, fd, data, position)
        files.ftruncate(fd, position + len(data))
    finally:
        files.close(fd)


def _write_all(files: Files, fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        count = files.pwrite(fd, view, position)
        view, position = view[count:], position + count


def sync_path(files: Files, path: str) -> None:
    """Make a file or a directory durable; one that is gone in the meantime needs nothing. Raises SyncError when
    the disk did not confirm it, another OSError when it could not be asked.
    """
    try:
        fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with sync_errors():
            files.fsync(fd)
    finally:
        files.close(fd)


def sync_file_system(files: Files, path: str) -> None:
    """Make all that memory holds for the file system of `path` durable, in one pass. Raises OSError.

    Thousands of files are then clean, and the sync of each, which alone can say whether that file is whole, has
    nothing to write. Where the system has no such call this does nothing.
    """
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        files.syncfs(fd)
    finally:
        files.close(fd)


def sync_directory(files: Files, path: str) -> None:
    """Make renames, creations and removals in a directory durable."""
    sync_path(files, path)


def remove_quietly(files: Files, path: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(path)
