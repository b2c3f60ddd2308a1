"""A partition moves to another log directory, and the process ends, the power goes or the disk fails at any call of it:
the next start finds the partition in one place, with all that was acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import Environment, seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError
from barnabas.log.moving.future_directory import create_future, future_name
from barnabas.log.moving.future_log import FutureLog, PlaceUnclear, retire
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import decode_records, encode_batch
from barnabas.storage.directories.log_directories import LogDirectories

TOPIC: Final = "t"
TOPIC_ID: Final = uuid.UUID(int=7)
KEY: Final = (TOPIC, 0)
CONFIG: Final = LogConfig(segment_bytes=700, retention_ms=-1, message_timestamp_after_max_ms=2**60)
PATHS: Final = ("/a/log", "/b/log", "/c/log")
CHANGES: Final = {
    *("open", "pwrite", "pwritev", "ftruncate", "fdatasync", "fsync", "syncfs"),
    *("rename", "unlink", "makedirs", "remove_tree"),
}


class EndedError(BaseException):
    """The process ends here: no handler of the code under test may see it as an error of the disk."""


class BreakableFiles:
    """A disk with which something happens before the change with the number `at`."""

    def __init__(self, disk: MemoryFiles) -> None:
        self.disk = disk
        self.changes = 0
        self.at = -1
        self.is_end = True
        """Whether the process ends there; else that one call fails."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.disk, name)

        def call(*arguments: Any) -> Any:
            self.changes += name in CHANGES
            if self.at >= 0 and name != "close":
                if self.is_end and self.changes > self.at:
                    raise EndedError
                if not self.is_end and self.changes == self.at + 1 and name in CHANGES - {"remove_tree"}:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments)

        return call


class Node:
    """The log directories of a node, and the one partition in them."""

    def __init__(self) -> None:
        self.files = BreakableFiles(MemoryFiles())
        self.clock = ManualClock()
        self.environment: Environment = seeded_environment(1, self.clock, files=cast(Files, self.files))
        self.values: list[bytes] = []
        """What was acknowledged and synced, from offset 0 on."""
        self.tried = b""
        self.start = 0
        self.open()

    def open(self) -> None:
        self.directories = LogDirectories.open(
            PATHS, "c", 1, self.environment, producer_id_expiration_ms=86_400_000
        )
        self.path = self.directories.claim(
            TOPIC, 0, TOPIC_ID, is_new=not self.directories.found, preferred=PATHS[0]
        )
        self.log: PartitionLog = self.directories.open_partition(
            self.path, TOPIC, 0, TOPIC_ID, CONFIG, may_begin_anew=False
        )[0]

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.tried = b"%d" % len(self.values)
            number = len(self.values)
            self.log.append_as_leader(self.batch(number, self.tried), 3)
            self.log.flush()
            self.values.append(self.tried)

    def batch(self, number: int, value: bytes) -> bytes:
        return encode_batch(
            [(self.clock.now_ms(), None, value, ())], producer_id=4, producer_epoch=0, base_sequence=number
        )

    def trim(self, offset: int) -> None:
        self.log.maybe_increment_log_start_offset(offset)
        self.log.delete_old_segments(self.log.log_end_offset)
        self.directories.write_checkpoints(self.path, {KEY: self.log.log_end_offset})
        self.start = offset

    def move(self, path: str) -> None:
        """All of a move, one step after the other."""
        files, home = cast(Files, self.files), self.directories.at(path)
        name = future_name(TOPIC, 0, self.environment.new_id())
        create_future(files, path, name, TOPIC_ID)
        future = FutureLog(home, name, self.log)
        future.copy(500)
        self.append()
        while future.lag:
            future.copy(500)
        future.flush()
        self.append()
        future.complete(500)
        former = self.directories.at(self.path)
        left = self.log
        self.log = future.promote(former, left.log_end_offset)
        self.directories.relocate(KEY, path)
        self.path = path
        self.append()
        others = [self.directories.at(each) for each in PATHS if each != path]
        retire(former, left, home, others, is_last=True)
        self.append()

    def reopened(self) -> None:
        """Open the directories as the next process does, and look at what is there."""
        self.files.at = -1
        self.open()
        if self.log.log_end_offset == len(self.values) + 1:
            self.values.append(self.tried)  # it was not acknowledged, and may be there
        self.check()
        self.append()
        self.check()
        self.directories.close({KEY: self.log.log_end_offset})
        self.open()
        self.check()

    def check(self) -> None:
        assert [place for place in PATHS if self.holds(place)] == [self.path], "in one place, and no other"
        assert read(self.log) == dict(enumerate(self.values[self.start :], start=self.start))
        assert self.log.log_start_offset == self.start
        # A producer that has not heard an acknowledgement is told where its last batch is.
        last = len(self.values) - 1
        told = self.log.append_as_leader(self.batch(last, self.values[-1]), 3)
        assert (told.duplicate, told.base_offset) == (True, last)

    def holds(self, path: str) -> bool:
        return "t-0" in self.files.disk.list_directories(path)


def read(log: PartitionLog) -> dict[int, bytes | None]:
    found, offset = {}, log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1000)
        for position, header in iterate_headers(data):
            for record in decode_records(data[position : position + header.size_in_bytes]):
                if record.offset >= log.log_start_offset:
                    found[record.offset] = record.value
            offset = header.next_offset
    return found


def prepared() -> Node:
    node = Node()
    node.append(20)
    node.trim(7)
    return node


def changes_of(act: Callable[[Node], None]) -> int:
    node = prepared()
    before = node.files.changes
    act(node)
    node.check()
    return node.files.changes - before


@contextlib.contextmanager
def ending(node: Node, at: int) -> Iterator[None]:
    node.files.at, node.files.is_end = node.files.changes + at, True
    with contextlib.suppress(EndedError):
        yield


def there(node: Node) -> None:
    node.move(PATHS[1])


def there_and_back(node: Node) -> None:
    node.move(PATHS[1])
    node.move(PATHS[0])


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("act", [there, there_and_back])
def test_a_move_that_ends_anywhere_leaves_one_whole_log(
    act: Callable[[Node], None], loses_power: bool
) -> None:
    for at in range(changes_of(act)):
        node = prepared()
        with ending(node, at):
            act(node)
        if loses_power:
            node.files.disk.lose_power(random.Random(at))
        else:
            node.directories.abandon()
        node.reopened()


def test_a_start_that_ends_while_it_clears_up_is_followed_by_another() -> None:
    for at in range(20, changes_of(there), 2):
        for second in range(1 + at % 3, 40, 9):
            node = prepared()
            with ending(node, at):
                node.move(PATHS[1])
            node.files.disk.lose_power(random.Random(at))
            with ending(node, second):
                node.open()
            node.files.disk.lose_power(random.Random(second))
            node.reopened()


@pytest.mark.parametrize("act", [there, there_and_back])
def test_a_call_that_fails_leaves_one_whole_log(act: Callable[[Node], None]) -> None:
    """Whatever was refused: who goes on with the log that he has, then starts anew, finds what he wrote."""
    refused = 0
    for at in range(changes_of(act)):
        node = prepared()
        node.files.at, node.files.is_end = node.files.changes + at, False
        is_unclear = False
        try:
            act(node)
        except (KafkaError, LogStoreError) as error:
            refused += 1
            is_unclear = isinstance(error, PlaceUnclear)
        node.files.at = -1
        if not is_unclear:  # else nothing is appended any more
            with contextlib.suppress(KafkaError):
                node.append()
        node.directories.abandon()
        node.reopened()
    assert refused > 10


def test_two_directories_that_no_move_explains_are_refused() -> None:
    node = prepared()
    node.directories.abandon()
    create_future(cast(Files, node.files), PATHS[2], "t-0", TOPIC_ID)
    with pytest.raises(LogStoreError, match="both hold t-0"):
        node.open()


def test_what_moved_out_of_a_directory_that_was_offline_is_not_taken_for_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The directory that the partition left fails before it is cleared up, and comes back with what it had."""
    node = prepared()
    rename = node.files.disk.rename

    def refuse(old: str, new: str) -> None:
        if new.endswith("-delete"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(node.files.disk, "rename", refuse)
        with pytest.raises(KafkaError):
            node.move(PATHS[1])
    assert node.holds(PATHS[0])
    node.directories.abandon()
    real = node.files.disk.list_directories

    def fail(path: str) -> list[str]:
        if path == PATHS[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(node.files.disk, "list_directories", fail)
    for _ in range(2):
        node.files.at = -1
        node.open()
        assert node.path == PATHS[1]
        node.append()
        node.directories.close({KEY: node.log.log_end_offset})
    monkeypatch.undo()
    node.reopened()
    assert node.path == PATHS[1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_appended_after_a_move_is_not_hidden_by_the_former_directory(
    monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    """The process ends before what the move left is removed, and the new directory is offline at the next start."""
    node = prepared()
    monkeypatch.setattr("test_moved_partitions.retire", lambda *_, **__: None)
    node.move(PATHS[1])
    if is_clean:
        node.directories.close({KEY: node.log.log_end_offset})
    else:
        node.directories.abandon()
    real = node.files.disk.list_directories

    def fail(path: str) -> list[str]:
        if path == PATHS[1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(node.files.disk, "list_directories", fail)
        directories = LogDirectories.open(
            PATHS, "c", 1, node.environment, producer_id_expiration_ms=86_400_000
        )
        assert directories.claim(TOPIC, 0, TOPIC_ID, is_new=False) == PATHS[1]
        directories.abandon()
    node.reopened()
    assert node.path == PATHS[1]
