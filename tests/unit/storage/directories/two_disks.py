"""A node with two log directories, each on a disk of its own in memory, and one partition."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.moving.future_directory import create_future, future_name
from barnabas.log.moving.future_log import FutureLog
from barnabas.log.partition_log import PartitionLog
from barnabas.records.record import encode_batch
from barnabas.storage.directories.log_directories import LogDirectories

PATHS: Final = ("/a/log", "/b/log")
CONFIG: Final = LogConfig(retention_ms=-1, message_timestamp_after_max_ms=2**60)
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


class NothingReachesTheDisk(random.Random):
    """Of what was not synced, when the power is lost."""

    def randint(self, a: int, b: int) -> int:
        return a


class Node:
    """Two log directories on two disks in memory."""

    def __init__(self) -> None:
        self.files = MemoryFiles(("/a", "/b"))
        self.environment = seeded_environment(1, ManualClock(), files=self.files)
        self.open()

    def open(self) -> None:
        self.directories = LogDirectories.open(
            PATHS, "c", 1, self.environment, producer_id_expiration_ms=86_400_000
        )

    def begin(
        self, topic_id: uuid.UUID, preferred: str = "", *, is_new: bool = True, may_begin_anew: bool = True
    ) -> tuple[str, PartitionLog]:
        path = self.directories.claim("t", 0, topic_id, is_new=is_new, preferred=preferred)
        home = self.directories.find_home(path, "t", 0, topic_id, may_begin_anew=may_begin_anew)
        opened, _ = self.directories.open_partition(
            home, "t", 0, topic_id, CONFIG, may_begin_anew=may_begin_anew
        )
        return home, opened

    def go(self, topic_id: uuid.UUID = FIRST) -> None:
        self.directories.release("t", 0)
        self.directories.delete_partition("t", 0, topic_id)

    def move(self, log: PartitionLog) -> None:
        """From the first directory to the second, whose checkpoints say so; those of the first are not written yet."""
        former, home = (self.directories.at(path) for path in PATHS[:2])
        name = future_name("t", 0, self.environment.new_id())
        create_future(self.files, home.path, name, FIRST)
        future = FutureLog(home, name, log)
        while future.lag:
            future.copy(1 << 20)
        future.complete(1 << 20)
        future.prepare(log.log_end_offset)
        future.promote(former)
        self.directories.relocate(("t", 0), home.path)
        future.clear_up()

    def lose_power(self) -> None:
        self.directories.abandon()
        self.files.lose_power(NothingReachesTheDisk())
        self.open()

    def crash(self) -> None:
        self.directories.abandon()
        self.open()

    def names(self, path: str) -> list[str]:
        return self.files.list_directories(path)

    @contextlib.contextmanager
    def full(self, prefix: str) -> Iterator[None]:
        """While it is entered, nothing can be written to files whose path begins so."""
        real = self.files.pwrite

        def write(fd: int, *arguments: Any) -> int:
            if self.files._open[fd].path.startswith(prefix):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.files, "pwrite", write)
            yield

    @contextlib.contextmanager
    def failing(self, call: str, *, beginning: str = "", ending: str = "") -> Iterator[None]:
        """While it is entered, this call fails for names that begin and end so."""
        real = getattr(self.files, call)

        def fail(name: str, *arguments: Any) -> Any:
            if name.startswith(beginning) and name.endswith(ending):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(name, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.files, call, fail)
            yield

    @contextlib.contextmanager
    def failing_sync(self, path: str) -> Iterator[None]:
        """While it is entered, the disk does not confirm the names that are in the directory of the path."""
        real = self.files.fsync

        def fsync(fd: int) -> None:
            if self.files._open[fd].path == path:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(fd)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.files, "fsync", fsync)
            yield


def sync_names(node: Node, path: str) -> None:
    """The directories in that of the path are on its disk, and nothing that is in them."""
    fd = node.files.open(path, os.O_RDONLY)
    node.files.fsync(fd)
    node.files.close(fd)


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([(1, None, b"v", ())]), 0)
    log.flush()


def expire_all(log: PartitionLog) -> int:
    """Retention takes all records, the last one of them just written; returns where the log ends."""
    fill(log, 1)
    log.roll()
    log.maybe_increment_log_start_offset(log.log_end_offset)
    log.delete_old_segments(log.log_end_offset)
    assert [each.size for each in log.segments] == [0]
    return log.log_end_offset


def refuse(
    monkeypatch: pytest.MonkeyPatch, node: Node, method: str, refuses: Callable[[str], bool], code: int
) -> None:
    """A method of the files fails for some paths, with this errno."""
    real = getattr(node.files, method)

    def fail(path: str, *arguments: int) -> object:
        if refuses(path):
            raise OSError(code, os.strerror(code), path)
        return real(path, *arguments)

    monkeypatch.setattr(node.files, method, fail)
