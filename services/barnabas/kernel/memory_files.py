"""Disks in memory that can lose their power, for tests and simulation.

What real ones promise, and no more: bytes are durable once their file was synced, names once their directory was.
Names change on a disk in the order in which they were changed in memory, as its journal keeps them; what is done on
one disk says nothing of another. Of what was not synced, chance decides: each write has reached the disk or not, whole
or in part; of the names, a beginning of each journal has.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.kernel.files import NAME_BYTES_MAX

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""

BLOCK_BYTES: Final = 4096
BLOCKS: Final = 2**20
"""The size of the disk, as it is told: nothing holds it to that."""


class MemoryStatus(NamedTuple):
    """What is known of a file or a directory."""

    st_mode: int
    st_size: int
    st_mtime_ns: int


class MemorySpace(NamedTuple):
    """What is known of the disk."""

    f_frsize: int
    f_blocks: int
    f_bavail: int


class _Node:
    """A file or a directory, whatever its name. Of a file: what memory shows, what the disk has, what lies between."""

    __slots__ = ("content", "durable", "is_directory", "lock", "modified_ns", "waiting")

    def __init__(self, *, is_directory: bool) -> None:
        self.is_directory = is_directory
        self.content = bytearray()
        self.durable = b""
        self.waiting: list[_Write | int] = []
        """Writes, and sizes that the file was cut to, since it was synced."""
        self.modified_ns = 0
        self.lock: int | None = None


class _Write(NamedTuple):
    position: int
    data: bytes


_Change = dict[str, "_Node | None"]
"""What paths lead to from now on, None for nothing: one step of the journal, which the disk has whole or not at all."""


class _OpenFile(NamedTuple):
    path: str
    node: _Node


class _Disk:
    """Owner of the names on one disk, and of those that have changed since."""

    def __init__(self, path: str, names: dict[str, _Node]) -> None:
        self.path = path
        """Where it is mounted."""
        self.names = names
        self.journal: list[_Change] = []

    def sync_names_in(self, directory: str) -> None:
        """The journal is written in order: up to the last change of a name in this directory."""
        count = 0
        for number, change in enumerate(self.journal):
            if directory in map(os.path.dirname, change):
                count = number + 1
        self.write(count)

    def write(self, count: int) -> None:
        """So many changes of names reach the disk."""
        _apply(self.names, self.journal[:count])
        del self.journal[:count]


class MemoryFiles:
    """Owner of the disks and of what memory holds of them. For one thread."""

    def __init__(self, disks: Sequence[str] = ()) -> None:
        """Each of the directories `disks` is a disk of its own; one more has everything else."""
        self._names: dict[str, _Node] = {}
        self._disks = [_Disk(path, {path: _Node(is_directory=True)}) for path in ("/", *disks)]
        for disk in self._disks:
            self._names |= disk.names
        self._open: dict[int, _OpenFile] = {}
        self._next_fd = 3

    def lose_power(self, chance: random.Random) -> None:
        """Forget what memory holds, and whatever of it has not reached the disks."""
        for disk in self._disks:
            disk.write(chance.randint(0, len(disk.journal)))
            disk.journal.clear()
        names = {path: node for disk in self._disks for path, node in disk.names.items()}
        for node in names.values():
            content = bytearray(node.durable)
            for change in node.waiting:
                if chance.random() < 0.5:
                    continue
                if isinstance(change, int):
                    _cut(content, change)
                    continue
                data = change.data
                if chance.random() < 0.5:
                    end = change.position + chance.randrange(len(data) + 1)
                    data = data[: max(0, end // SECTOR_BYTES * SECTOR_BYTES - change.position)]
                _write(content, change.position, data)
            node.content, node.durable, node.waiting, node.lock = content, bytes(content), [], None
        self._names = names
        self._open.clear()

    def rot(self, path: str, position: int, mask: int) -> None:
        """One byte of what is on the disk is another one from now on, and nobody is told."""
        node = self._find(path)
        assert not node.waiting, "what rots is on the disk"
        node.content[position] ^= mask
        node.durable = bytes(node.content)

    def is_durable(self, path: str) -> bool:
        """Whether the disk has what the file holds."""
        return not self._find(path).waiting

    # -- files by descriptor ------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        node = self._names.get(path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            self._check_parent(path)
            node = _Node(is_directory=False)
            self._change({path: node})
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        elif node.is_directory and flags & (os.O_WRONLY | os.O_RDWR):
            raise _error(errno.EISDIR, path)
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = _OpenFile(path, node)
        if flags & os.O_TRUNC:
            self.ftruncate(fd, 0)
        return fd

    def close(self, fd: int, /) -> None:
        opened = self._open.pop(fd, None)
        if opened is not None and opened.node.lock == fd:
            opened.node.lock = None

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        return bytes(self._node(fd).content[position : position + length])

    def preadv(self, fd: int, buffers: Sequence[WriteableBuffer], position: int, flags: int = 0, /) -> int:
        start = position
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            data = self.pread(fd, len(view), position)
            view[: len(data)] = data
            position += len(data)
        return position - start

    def pwrite(self, fd: int, data: ReadableBuffer, position: int, /) -> int:
        return self.pwritev(fd, [data], position)

    def pwritev(self, fd: int, buffers: Sequence[ReadableBuffer], position: int, /) -> int:
        node, data = self._node(fd), b"".join(buffers)
        _write(node.content, position, data)
        node.waiting.append(_Write(position, data))
        return len(data)

    def ftruncate(self, fd: int, length: int, /) -> None:
        node = self._node(fd)
        _cut(node.content, length)
        node.waiting.append(length)

    def fstat(self, fd: int, /) -> MemoryStatus:
        return _status(self._node(fd))

    def fdatasync(self, fd: int, /) -> None:
        self._sync(self._node(fd))

    def fsync(self, fd: int, /) -> None:
        path, node = self._open[fd]
        if not node.is_directory:
            self._sync(node)
            return
        self._disk(path).sync_names_in(path)

    def syncfs(self, fd: int, /) -> None:
        self._node(fd)
        disk = self._disk(self._open[fd].path)
        for path, node in self._names.items():
            if self._disk(path) is disk:
                self._sync(node)
        disk.write(len(disk.journal))

    def posix_fadvise(self, fd: int, position: int, length: int, advice: int, /) -> None:
        """Everything is in memory."""

    def flock(self, fd: int, operation: int, /) -> None:
        node = self._node(fd)
        if node.lock not in (None, fd):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        node.lock = fd

    # -- files and directories by name --------------------------------------------------------------------------

    def stat(self, path: str, /) -> MemoryStatus:
        return _status(self._find(path))

    def statvfs(self, path: str, /) -> MemorySpace:
        self._find(path)
        disk = self._disk(path)
        nodes = [node for each, node in self._names.items() if self._disk(each) is disk]
        used = sum(len(node.content) // BLOCK_BYTES + 1 for node in nodes)
        return MemorySpace(BLOCK_BYTES, BLOCKS, BLOCKS - used)

    def utime(self, path: str, modified_ns: int, /) -> None:
        self._find(path).modified_ns = modified_ns

    def listdir(self, path: str, /) -> list[str]:
        if not self._find(path).is_directory:
            raise _error(errno.ENOTDIR, path)
        inside = path.rstrip("/") + "/"
        names = (name[len(inside) :] for name in self._names if name.startswith(inside))
        return [name for name in names if name and "/" not in name]

    def list_directories(self, path: str, /) -> list[str]:
        return [name for name in self.listdir(path) if self._names[os.path.join(path, name)].is_directory]

    def makedirs(self, path: str, /) -> None:
        if path in self._names:
            if not self._names[path].is_directory:
                raise _error(errno.EEXIST, path)
            return
        self.makedirs(os.path.dirname(path))
        self._check_parent(path)
        self._change({path: _Node(is_directory=True)})

    def rename(self, old: str, new: str, /) -> None:
        node = self._find(old)
        self._check_parent(new)
        if self._disk(old) is not self._disk(new):
            raise _error(errno.EXDEV, new)
        if node.is_directory and new in self._names:
            raise _error(errno.ENOTEMPTY, new)
        moved = {
            path: each for path, each in self._names.items() if path == old or path.startswith(old + "/")
        }
        self._change(
            {**dict.fromkeys(moved), **{new + path[len(old) :]: each for path, each in moved.items()}}
        )

    def unlink(self, path: str, /) -> None:
        if self._find(path).is_directory:
            raise _error(errno.EISDIR, path)
        self._change({path: None})

    def remove_tree(self, path: str, /) -> None:
        for name in sorted(self._names, reverse=True):
            if name == path or name.startswith(path + "/"):
                self._change({name: None})

    def _disk(self, path: str) -> _Disk:
        for disk in self._disks[1:]:
            if path == disk.path or path.startswith(disk.path + "/"):
                return disk
        return self._disks[0]

    def _node(self, fd: int) -> _Node:
        opened = self._open.get(fd)
        if opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened.node

    def _find(self, path: str) -> _Node:
        node = self._names.get(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _check_parent(self, path: str) -> None:
        parent = self._names.get(os.path.dirname(path))
        if parent is None or not parent.is_directory:
            raise _error(errno.ENOENT, path)
        if len(os.path.basename(path).encode()) > NAME_BYTES_MAX:
            raise _error(errno.ENAMETOOLONG, path)

    def _change(self, change: _Change) -> None:
        _apply(self._names, [change])
        self._disk(next(iter(change))).journal.append(change)

    def _sync(self, node: _Node) -> None:
        node.durable = bytes(node.content)
        node.waiting.clear()


def _apply(names: dict[str, _Node], journal: Sequence[_Change]) -> None:
    for change in journal:
        for path, node in change.items():
            if node is None:
                names.pop(path, None)
            else:
                names[path] = node


def _write(content: bytearray, position: int, data: bytes) -> None:
    if data:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


def _cut(content: bytearray, length: int) -> None:
    content.extend(bytes(max(0, length - len(content))))
    del content[length:]


def _status(node: _Node) -> MemoryStatus:
    mode = stat.S_IFDIR if node.is_directory else stat.S_IFREG
    return MemoryStatus(mode, len(node.content), node.modified_ns)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
