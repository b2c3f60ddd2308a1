"""A machine's disks, and what of them one process has open.

Disks outlive processes. One that was killed has written what it had written, and nothing after; its files are
closed and its locks are free, as the kernel does it. Who loses power loses what was not synced (`MemoryFiles`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from virtual_loop import Life

from barnabas.kernel.memory_files import MemoryFiles
from barnabas.records.batch import CRC_START, iterate_headers

NEEDS_ROOM: Final = frozenset({"pwrite", "pwritev", "makedirs", "rename"})
SYNCS: Final = frozenset({"fdatasync", "fsync", "syncfs"})
KNOWN: Final = frozenset(name for name in vars(MemoryFiles) if not name.startswith("_")) - {
    "lose_power",
    "rot",
    "is_durable",
}


class DiskHealth:
    """Owner of how one disk does."""

    def __init__(self, path: str) -> None:
        self.path = path
        """Where it is mounted."""
        self.is_full = False
        self.fails_syncs = False
        self.fails_writes = False
        self.refused_at: list[float] = []
        """When it has refused records since it began to."""

    @property
    def is_well(self) -> bool:
        """Whether it takes all that is written to it."""
        return not (self.is_full or self.fails_syncs or self.fails_writes)


class VirtualDisk:
    """Owner of one machine's files and of how its disks do: one, and one at each of the paths `more`."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        self.files = MemoryFiles(more)
        self.more = more
        self.healths = [DiskHealth(path) for path in (*more, "/")]
        """The one that has all that the others have not is the last."""
        self.slowness = 1.0
        """Of all of them: the threads that wait for them are the process's."""
        self.may_halt = False
        """Whether work in a pool's thread may come to a `Halt` from now on; that in shared ones never does."""

    def health_of(self, path: str) -> DiskHealth:
        """Of the disk that a path is on."""
        return next(
            (each for each in self.healths[:-1] if path.startswith(each.path + "/")), self.healths[-1]
        )

    def lose_power(self, chance: random.Random) -> None:
        self.files.lose_power(chance)

    def rot(self, directories: Sequence[str], chance: random.Random) -> str | None:
        """A bit flips in a finished segment of one of these partitions, where the CRC covers it; which file it is,
        if there is one.
        """
        finished = [path for directory in directories for path in self._finished_segments(directory)]
        if not finished:
            return None
        path = chance.choice(finished)
        fd = self.files.open(path, os.O_RDONLY)
        content = self.files.pread(fd, self.files.stat(path).st_size, 0)
        self.files.close(fd)
        position, header = chance.choice(list(iterate_headers(content)))
        self.files.rot(
            path, position + chance.randrange(CRC_START, header.size_in_bytes), 1 << chance.randrange(8)
        )
        return path

    def _finished_segments(self, directory: str) -> list[str]:
        logs = sorted(name for name in self.files.listdir(directory) if name.endswith(".log"))
        paths = [f"{directory}/{name}" for name in logs[:-1]]
        return [path for path in paths if self.files.stat(path).st_size and self.files.is_durable(path)]


class ProcessFiles:
    """The files of one process: a `kernel.files.Files`, until the process ends."""

    def __init__(self, disk: VirtualDisk, life: Life) -> None:
        self._disk = disk
        self._life = life
        self._open: dict[int, DiskHealth] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in KNOWN:
            raise AttributeError(name)
        call = self._guarded(name, getattr(self._disk.files, name))
        setattr(self, name, call)
        return call

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        life, needs_room, syncs = self._life, name in NEEDS_ROOM, name in SYNCS

        def call(*arguments: Any) -> Any:
            if life.is_ended:
                raise _error(errno.EIO)
            if needs_room or syncs:
                health = self._health_of(arguments[0])
                if (health.is_full or health.fails_writes) and name == "pwritev":  # as the log writes records
                    health.refused_at.append(asyncio.get_running_loop().time())
                if health.is_full and needs_room:
                    raise _error(errno.ENOSPC)
                if (health.fails_syncs and syncs) or (health.fails_writes and needs_room):
                    raise _error(errno.EIO)
            return real(*arguments)

        return call

    def _health_of(self, file: str | int) -> DiskHealth:
        if isinstance(file, str):
            return self._disk.health_of(file)
        return self._open.get(file) or self._disk.healths[-1]  # of one that is closed nothing is asked

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        if self._life.is_ended:
            raise _error(errno.EIO)
        health = self._disk.health_of(path)
        if health.is_full and flags & os.O_CREAT and not self._exists(path):
            raise _error(errno.ENOSPC)
        if health.fails_writes and flags & os.O_CREAT and not self._exists(path):
            raise _error(errno.EIO)
        fd = self._disk.files.open(path, flags, mode)
        self._open[fd] = health
        return fd

    def close(self, fd: int, /) -> None:
        if self._open.pop(fd, None) is not None:
            self._disk.files.close(fd)

    def _exists(self, path: str) -> bool:
        try:
            self._disk.files.stat(path)
        except OSError:
            return False
        return True

    def on_end(self) -> None:
        """The process has ended: the kernel closes what it had open."""
        for fd in self._open:
            self._disk.files.close(fd)
        self._open.clear()


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
