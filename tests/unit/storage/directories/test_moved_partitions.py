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
from barnabas.storage.directories.errors import DirectoryOffline, LogLost
from barnabas.storage.directories.log_directories import LogDirectories

TOPIC: Final = "t"
TOPIC_ID: Final = uuid.UUID(int=7)
KEY: Final = (TOPIC, 0)
DISKS: Final = ("/a", "/b", "/c")
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
        self.has_effect = False
        """Whether what fails was done."""
        self.unreadable = ""
        """A directory that cannot be listed."""
        self.full = ""
        """A directory whose disk has no room..."""
        self.full_from = 0
        """... from the change of that number on."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.disk, name)

        def call(*arguments: Any) -> Any:
            self.changes += name in CHANGES
            if self.at >= 0 and name != "close":
                if self.is_end and self.changes > self.at:
                    raise EndedError
                if not self.is_end and self.changes == self.at + 1 and name in CHANGES - {"remove_tree"}:
                    if self.has_effect:
                        real(*arguments)
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            if name == "list_directories" and arguments[0] == self.unreadable:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.full and self.changes >= self.full_from and self.needs_room(name, *arguments):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments)

        return call

    def needs_room(self, name: str, *arguments: Any) -> bool:
        if name in ("pwrite", "pwritev", "fsync"):
            path = self.disk._open[arguments[0]].path
        elif name == "makedirs" or (name == "open" and arguments[1] & os.O_CREAT):
            path = arguments[0]
        else:
            return False
        return path.startswith(self.full) and not (
            name == "fsync" and self.disk._node(arguments[0]).is_directory
        )


class Node:
    """The log directories of a node, and the one partition in them."""

    def __init__(self) -> None:
        self.files = BreakableFiles(MemoryFiles(DISKS))
        self.clock = ManualClock()
        self.environment: Environment = seeded_environment(1, self.clock, files=cast(Files, self.files))
        self.values: list[bytes] = []
        """What was acknowledged and synced, from offset 0 on."""
        self.tried = b""
        self.start = self.tried_start = 0
        self.open(is_new=True)

    def open(self, *, is_new: bool = False) -> None:
        self.directories = LogDirectories.open(
            PATHS, "c", 1, self.environment, producer_id_expiration_ms=86_400_000
        )
        self.path = self.directories.claim(TOPIC, 0, TOPIC_ID, is_new=is_new, preferred=PATHS[0])
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
        self.tried_start = offset
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
        self.trim(self.start + 1)  # in the midst of what was copied
        while future.lag:
            future.copy(500)
        future.flush()
        self.append()
        future.complete(500)
        former = self.directories.at(self.path)
        left = self.log
        future.prepare(left.log_end_offset)
        self.log = future.promote(former)
        self.directories.relocate(KEY, path)
        self.path = path
        self.append()
        future.clear_up()
        self.append()
        retire(former, left)
        self.append()

    def reopened(self) -> None:
        """Open the directories as the next process does, and look at what is there."""
        self.files.at = -1
        self.open()
        self.look_at_tried()
        self.check()
        names = [name for path in PATHS for name in self.files.disk.list_directories(path)]
        assert not [name for name in names if name.endswith(("-moving", "-delete"))]
        self.append()
        self.check()
        self.directories.close({KEY: self.log.log_end_offset})
        self.open()
        self.check()

    def check(self, without: str = "") -> None:
        holders = [place for place in PATHS if self.holds(place) and place != without]
        assert holders == [self.path], "in one place, and no other"
        assert read(self.log) == dict(enumerate(self.values[self.start :], start=self.start))
        assert self.log.log_start_offset == self.start
        # A producer that has not heard an acknowledgement is told where its last batch is.
        last = len(self.values) - 1
        told = self.log.append_as_leader(self.batch(last, self.values[-1]), 3)
        assert (told.duplicate, told.base_offset) == (True, last)

    def look_at_tried(self) -> None:
        """What was not acknowledged may be there, and what was to be deleted may be gone."""
        if self.log.log_start_offset == self.tried_start:
            self.start = self.tried_start
        if self.log.log_end_offset == len(self.values) + 1:
            self.values.append(self.tried)

    def start_without(self, path: str) -> None:
        """A process starts that cannot read the directory, appends if it has the partition, and ends."""
        self.files.at, self.files.unreadable = -1, path
        try:
            self.open()
        except DirectoryOffline:
            assert not any(self.holds(each) for each in PATHS if each != path)
        else:
            self.look_at_tried()
            self.check(without=path)
            self.append(3)
        self.directories.abandon()
        self.files.unreadable = ""

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


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("path", PATHS[:2], ids=["former", "home"])
def test_who_starts_without_one_of_the_directories_hides_nothing(path: str, loses_power: bool) -> None:
    """It serves the partition only where it can have lost none of it, and where the start after it finds the rest."""
    for at in range(changes_of(there)):
        node = prepared()
        with ending(node, at):
            there(node)
        if loses_power:
            node.files.disk.lose_power(random.Random(at))
        else:
            node.directories.abandon()
        node.start_without(path)
        node.reopened()


@pytest.mark.parametrize("path", PATHS[:2], ids=["former", "home"])
@pytest.mark.parametrize("has_effect", [False, True])
def test_a_disk_that_fails_once_may_be_away_at_the_next_start(path: str, has_effect: bool) -> None:
    for at in range(changes_of(there)):
        node = prepared()
        node.files.at, node.files.is_end, node.files.has_effect = node.files.changes + at, False, has_effect
        is_unclear = False
        try:
            there(node)
        except (KafkaError, LogStoreError) as error:
            is_unclear = isinstance(error, PlaceUnclear)
        node.files.at = -1
        if not is_unclear:
            with contextlib.suppress(KafkaError):
                node.append()
        node.directories.abandon()
        node.start_without(path)
        node.reopened()


def test_a_start_that_the_disk_refuses_something_once_is_followed_by_another() -> None:
    for at in range(20, changes_of(there), 3):
        for second in range(at % 8, 40, 9):
            node = prepared()
            with ending(node, at):
                node.move(PATHS[1])
            node.files.disk.lose_power(random.Random(at))
            node.files.at, node.files.is_end = node.files.changes + second, False
            with contextlib.suppress(KafkaError, LogStoreError):
                node.open()
                node.files.at = -1
                node.look_at_tried()
                node.check()
                node.append(2)
            node.directories.abandon()
            node.start_without(PATHS[second % 2])
            node.reopened()


def test_a_full_disk_ends_a_move_and_takes_nothing_offline() -> None:
    moved = 0
    for at in range(changes_of(there)):
        node = prepared()
        node.files.full, node.files.full_from = PATHS[1], node.files.changes + at
        try:
            there(node)
        except PlaceUnclear:
            raise
        except KafkaError:
            if node.path == PATHS[0]:
                node.append()
        moved += node.path == PATHS[1]
        node.files.full = ""
        node.directories.abandon()
        node.reopened()
    assert moved > 0


def test_the_directory_that_a_partition_was_about_to_move_to_may_be_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = prepared()
    monkeypatch.setattr(FutureLog, "_take_place", ended)
    with pytest.raises(EndedError):
        node.move(PATHS[1])
    node.directories.abandon()
    monkeypatch.setattr("test_moved_partitions.PATHS", (PATHS[0], PATHS[2]))
    node.reopened()
    assert node.path == PATHS[0]


def test_what_was_moving_is_not_taken_for_another_topic_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    node = prepared()
    with monkeypatch.context() as patch:
        patch.setattr(FutureLog, "_take_place", ended)
        with pytest.raises(EndedError):
            node.move(PATHS[1])
    node.directories.abandon()
    create_future(cast(Files, node.files), PATHS[2], "t-0", uuid.UUID(int=8))
    node.open()
    assert node.path == PATHS[0]
    node.check()
    assert [each.topic_id for each in node.directories.strays.keys] == [uuid.UUID(int=8)]


def ended(*_: Any) -> None:
    raise EndedError


def test_what_is_gone_from_where_it_moved_to_is_not_replaced_by_what_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = prepared()
    monkeypatch.setattr("test_moved_partitions.retire", lambda *_, **__: None)
    node.move(PATHS[1])
    node.directories.write_checkpoints(PATHS[1])
    node.directories.abandon()
    node.files.disk.rename(f"{PATHS[1]}/t-0", "/b/elsewhere")
    with pytest.raises(LogLost):
        node.open()
    node.directories.abandon()
    node.files.disk.rename("/b/elsewhere", f"{PATHS[1]}/t-0")
    node.reopened()


def test_what_was_left_without_the_id_of_its_topic_goes_where_the_partition_has_come_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The power went before the file had reached the disk, and so before anything of that log was durable there."""
    node = prepared()
    with monkeypatch.context() as patch:
        patch.setattr("test_moved_partitions.retire", lambda *_, **__: None)
        node.move(PATHS[1])
    node.directories.abandon()
    (left,) = [name for name in node.files.disk.list_directories(PATHS[0]) if name.endswith("-moving")]
    node.files.disk.unlink(f"{PATHS[0]}/{left}/partition.metadata")
    node.reopened()
    node.move(PATHS[0])
    node.move(PATHS[1])
    node.directories.abandon()
    node.reopened()


@pytest.mark.parametrize(("act", "has_effect"), [(there, False), (there, True), (there_and_back, False)])
def test_a_call_that_fails_leaves_one_whole_log(act: Callable[[Node], None], has_effect: bool) -> None:
    """Whatever was refused: who goes on with the log that he has, then starts anew, finds what he wrote."""
    refused = 0
    for at in range(changes_of(act)):
        node = prepared()
        node.files.at, node.files.is_end, node.files.has_effect = node.files.changes + at, False, has_effect
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
    with pytest.raises(
        LogStoreError,
        match=r"both hold t-0; move one of them away \(not one that has moved.properties: it is the newer\)",
    ):
        node.open()
