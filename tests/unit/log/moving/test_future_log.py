"""A future log follows the current one through whatever becomes of that, and is the same in the end."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving import future_log
from barnabas.log.moving.future_directory import (
    MoveFacts,
    create_future,
    future_name,
    parse_future_name,
)
from barnabas.log.moving.future_log import (
    FutureLog,
    PlaceUnclear,
    remove_unclear_former,
    remove_unclear_home,
    retire,
)
from barnabas.log.moving.left_directory import find_left, is_name_too_long, left_name
from barnabas.log.moving.settling import adopt_moved, find_moved
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.records.batch import iterate_headers
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

TOPIC_ID: Final = uuid.UUID(int=7)
CONFIG: Final = LogConfig(segment_bytes=900, retention_ms=-1, message_timestamp_after_max_ms=2**60)


class Move:
    """A current log that chance changes, and a future one that copies it meanwhile."""

    def __init__(self, seed: int = 0, topic: str = "t") -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_700_000_000_000)
        self.files = MemoryFiles(("/a", "/b"))
        self.environment = seeded_environment(seed, self.clock, files=self.files)
        self.source = LogDirectory.open("/a", "c", 1, self.environment)
        self.home = LogDirectory.open("/b", "c", 1, self.environment)
        self.log: PartitionLog = self.source.open_partition(topic, 0, TOPIC_ID, CONFIG)
        self.name = future_name(topic, 0, uuid.UUID(int=1))
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        create_future(self.files, "/b", self.name, TOPIC_ID)
        self.future = FutureLog(self.home, self.name, self.log)

    def append(self) -> None:
        producer = self.chance.randrange(3)
        sequence = self.sequences.get(producer, 0)
        values = [
            (self.clock.now_ms(), None, self.chance.randbytes(self.chance.choice((3, 90))), ())
            for _ in range(self.chance.randint(1, 3))
        ]
        batch = encode_batch(values, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        self.log.append_as_leader(batch, self.epoch)
        self.sequences[producer] = sequence + len(values)

    def elect(self) -> None:
        self.epoch += self.chance.randint(1, 2)
        self.log.assign_epoch_start(self.epoch)

    def cut(self) -> None:
        self.log.truncate_to(self.chance.randint(self.log.log_start_offset, self.log.log_end_offset))
        self.elect()  # a follower's log; what others wrote instead is of another epoch
        self.sequences = {
            producer: entry.last_sequence + 1 for producer, entry in self.log.producer_state.producers.items()
        }

    def begin_anew(self) -> None:
        self.log.truncate_fully_and_start_at(self.log.log_end_offset + self.chance.choice((-2, 0, 40)) + 2)
        self.sequences = {}
        self.elect()

    def trim(self) -> None:
        self.log.maybe_increment_log_start_offset(
            self.chance.randint(self.log.log_start_offset, self.log.log_end_offset)
        )
        self.log.delete_old_segments(self.log.log_end_offset)

    def copy(self) -> None:
        self.future.copy(self.chance.choice((1, 300, 5000)))

    def reopen(self) -> None:
        """Another process goes on with it."""
        self.future.leave()
        self.future = FutureLog(self.home, self.name, self.log)

    def restart(self, *, is_clean: bool) -> None:
        """Another process opens the current log."""
        if is_clean:
            self.source.close({("t", 0): self.log.log_end_offset})
        else:
            self.source.abandon()
        self.source = LogDirectory.open("/a", "c", 1, self.environment)
        self.log = self.source.open_partition("t", 0, TOPIC_ID, CONFIG)

    def steps(self) -> list[Callable[[], None]]:
        return (
            [self.append] * 6
            + [self.copy] * 6
            + [self.elect, self.cut, self.trim, self.begin_anew, self.reopen]
        )

    def promote(self) -> PartitionLog:
        self.future.complete(500)
        self.future.prepare(self.log.log_end_offset)
        return self.future.promote(self.source)


def content(log: PartitionLog) -> list[bytes]:
    """Every batch from the log's start on, as it is."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 2000)
        if not data:
            break
        for position, header in iterate_headers(data):
            found.append(data[position : position + header.size_in_bytes])
            offset = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_same_log_in_the_end(seed: int) -> None:
    move = Move(seed)
    for _ in range(move.chance.randint(5, 120)):
        move.chance.choice(move.steps())()
    moved = move.promote()
    assert content(moved) == content(move.log)
    assert (moved.log_start_offset, moved.log_end_offset) == (
        move.log.log_start_offset,
        move.log.log_end_offset,
    )
    assert moved.epochs.entries == move.log.epochs.entries
    assert {
        producer: (entry.producer_epoch, list(entry.batches))
        for producer, entry in moved.producer_state.producers.items()
    } == {
        producer: (entry.producer_epoch, list(entry.batches))
        for producer, entry in move.log.producer_state.producers.items()
    }
    expected = content(move.log)
    move.home.close({("t", 0): moved.log_end_offset})
    again = LogDirectory.open("/b", "c", 1, move.environment)
    assert content(again.open_partition("t", 0, TOPIC_ID, CONFIG)) == expected


def test_where_compaction_has_left_nothing_the_offsets_go_on() -> None:
    move = Move()
    move.append()
    end = move.log.log_end_offset
    move.log.skip_to(end + 50)
    moved = move.promote()
    assert moved.log_end_offset == end + 50
    assert moved.append_as_leader(encode_batch([(1, None, b"x", ())]), 0).base_offset == end + 50


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("leaves_first", [True, False])
def test_what_another_process_has_copied_does_not_count(is_clean: bool, leaves_first: bool) -> None:
    """A follower has copied what its new leader never had, and takes it back while nobody copies; with the process goes
    what would say so.
    """
    move = Move(3)
    for _ in range(4):
        move.append()
    cut = move.log.log_end_offset
    for _ in range(3):
        move.append()
    while move.future.lag:
        move.future.copy(10_000)
    assert move.future.log_end_offset == move.log.log_end_offset > cut
    if leaves_first:
        move.future.leave()
        move.restart(is_clean=True)
    move.log.truncate_to(cut)
    move.elect()
    move.sequences = {
        producer: entry.last_sequence + 1 for producer, entry in move.log.producer_state.producers.items()
    }
    for _ in range(5):
        move.append()
    move.log.flush()
    move.source.write_checkpoints({})
    if not leaves_first:
        move.future.leave()
    move.restart(is_clean=is_clean)
    move.future = FutureLog(move.home, move.name, move.log)
    assert move.future.log_end_offset == 0
    expected = content(move.log)
    assert content(move.promote()) == expected


def test_a_transaction_is_undecided_until_its_marker_is_replicated() -> None:
    move = Move()
    for sequence in range(3):
        value = (move.clock.now_ms(), None, b"v", ())
        data = encode_batch(
            [value], producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        move.log.append_as_leader(data, 0, guard=UNGUARDED)
    high_watermark = move.log.log_end_offset
    marker = encode_marker(
        committed=True,
        producer_id=5,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=move.clock.now_ms(),
    )
    move.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    assert move.log.last_stable_offset(high_watermark) == 0
    move.future.complete(500)
    move.future.prepare(high_watermark)
    moved = move.future.promote(move.source)
    assert moved.last_stable_offset(high_watermark) == 0
    assert moved.last_stable_offset(high_watermark + 1) == high_watermark + 1


def test_an_idle_producer_is_known_for_as_long_as_the_current_log_knows_it() -> None:
    move = Move()
    data = encode_batch(
        [(move.clock.now_ms(), None, b"v", ())], producer_id=5, producer_epoch=0, base_sequence=0
    )
    move.log.append_as_leader(data, 0, guard=UNGUARDED)
    move.clock.advance(2 * 24 * 3600 * 1000)
    moved = move.promote()
    assert 5 in moved.producer_state.producers, "producer.id.expiration.ms may be longer than its default"


def test_who_reads_the_former_log_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what he has not opened yet, and where an aborted transaction is."""
    move = Move(5)
    for sequence in range(40):
        value = (move.clock.now_ms(), None, bytes(100), ())
        data = encode_batch(
            [value], producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        move.log.append_as_leader(data, 0, guard=UNGUARDED)
    marker = encode_marker(
        committed=False,
        producer_id=9,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=move.clock.now_ms(),
    )
    move.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    aborted_at = move.log.log_end_offset - 1
    for _ in range(40):
        move.append()
    move.log.flush()
    end = move.log.log_end_offset
    move.source.close({("t", 0): end})
    move.source = LogDirectory.open("/a", "c", 1, move.environment)
    move.log = move.source.open_partition("t", 0, TOPIC_ID, CONFIG)
    move.future = FutureLog(move.home, move.name, move.log)
    expected = content(move.log)
    assert len(move.log.segments) > 3
    for segment in move.log.segments[:-1]:
        segment.release()
        segment.transaction_index._entries = None
    seen, rename = [], move.files.rename

    def renamed(old: str, new: str) -> None:
        rename(old, new)
        if old == "/a/t-0":  # at this very moment
            seen.extend(move.log.aborted_transactions(0, end))

    monkeypatch.setattr(move.files, "rename", renamed)
    moved = move.promote()
    for segment in move.log.segments[:-1]:
        segment.release()
    assert content(move.log) == expected == content(moved)
    assert [each.last_offset for each in seen] == [aborted_at]
    assert [each.last_offset for each in move.log.aborted_transactions(0, end)] == [aborted_at]
    move.log.flush()
    assert move.log.is_trusted
    assert "t-0" not in move.files.listdir("/a")
    assert move.log.directory != "/a/t-0"
    retire(move.source, move.log)
    assert not [name for name in move.files.listdir("/a") if name.startswith("t-0")]
    assert move.log.is_closed


class EndedError(BaseException):
    """The process ends here."""


def ended(*_: object) -> None:
    raise EndedError


def test_checkpoints_of_what_was_here_before_say_nothing_of_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They could not be written when it went; and the process ends before those of the move are."""
    move = Move()
    move.append()
    home, key = move.home, ("t", 0)
    home.recovery_points[key] = home.high_watermarks[key] = home.log_start_offsets[key] = 1_000_000
    home.write_checkpoints({})
    move.future.complete(500)
    move.future.prepare(0)
    monkeypatch.setattr(home, "adopt", ended)
    with pytest.raises(EndedError):
        move.future.promote(move.source)
    home.abandon()
    again = LogDirectory.open("/b", "c", 1, move.environment)
    assert key in again.partitions_on_disk()
    assert key not in again.recovery_points
    assert key not in again.log_start_offsets


def test_what_is_taken_back_before_all_is_cleared_up_is_not_vouched_for() -> None:
    """The log goes on before its checkpoints are written; then it loses its end, and the process ends."""
    move = Move()
    for _ in range(6):
        move.append()
    moved = move.promote()
    cut = move.log.log_end_offset - 2
    moved.truncate_to(cut)
    move.home.abandon()
    again = LogDirectory.open("/b", "c", 1, move.environment)
    adopt_moved(move.files, again, find_moved(move.files, "/b", again.partitions_on_disk()))
    assert again.recovery_points["t", 0] <= cut
    assert "moved.properties" not in move.files.listdir("/b/t-0")


def test_how_far_it_is_compacted_is_on_the_disk_with_the_other_checkpoints() -> None:
    """The file that said so is removed then."""
    move, key = Move(), ("u", 0)
    move.files.makedirs("/b/u-0")
    move.home.adopt(
        key, MoveFacts(recovery_point=5, log_start_offset=0, high_watermark=5, first_dirty_offset=3)
    )
    move.home.write_checkpoints()
    move.home.abandon()
    again = LogDirectory.open("/b", "c", 1, move.environment)
    assert (again.recovery_points[key], again.cleaner_offsets[key]) == (5, 3)


class NothingReachesTheDisk(random.Random):
    """Of what was not synced, when the power is lost."""

    def randint(self, a: int, b: int) -> int:
        return a


@pytest.mark.parametrize("until", ["rename", "let_go"])
def test_a_name_that_was_given_up_or_taken_is_so_durably(monkeypatch: pytest.MonkeyPatch, until: str) -> None:
    """Before the other directory can have it; and before anything is appended."""
    move = Move()
    move.append()
    move.log.flush()
    move.source.write_checkpoints({})
    move.future.complete(500)
    move.future.prepare(0)
    monkeypatch.setattr(move.future._log if until == "rename" else move.source, until, ended)
    with pytest.raises(EndedError):
        move.future.promote(move.source)
    move.files.lose_power(NothingReachesTheDisk())
    assert "t-0" not in move.files.listdir("/a")
    assert ("t-0" in move.files.listdir("/b")) == (until == "let_go")


def test_what_an_unclear_change_of_places_leaves_is_removed_durably(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition may begin anew elsewhere afterwards: neither of the two may come back with its name."""
    move = Move()
    move.append()
    move.log.flush()
    move.future.complete(500)
    move.future.prepare(0)
    real = future_log.sync_directory

    def sync(files: Files, path: str) -> None:
        real(files, path)
        if path == "/b":
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(future_log, "sync_directory", sync)
        with pytest.raises(PlaceUnclear):
            move.future.promote(move.source)
    assert [name.endswith("-moving") for name in move.files.list_directories("/a")] == [True]
    assert move.files.list_directories("/b") == ["t-0"]
    remove_unclear_home(move.home, ("t", 0), move.name)
    remove_unclear_former(move.source, move.log)
    move.files.lose_power(NothingReachesTheDisk())
    names = move.files.list_directories("/a") + move.files.list_directories("/b")
    assert all(name.endswith("-delete") for name in names), names


def test_the_former_directory_may_be_closed_before_the_places_have_changed() -> None:
    """The node stops, each directory by itself: the mover's thread is not one of the former's."""
    move = Move(7)
    for _ in range(9):
        move.append()
    expected = content(move.log)
    end = move.log.log_end_offset
    move.future.complete(500)
    move.future.prepare(end)
    move.source.close({("t", 0): end})
    move.future.promote(move.source)
    move.home.close({("t", 0): end})
    home = LogDirectory.open("/b", "c", 1, move.environment)
    assert ("t", 0) in home.partitions_on_disk()
    assert home.recovery_points["t", 0] == end
    assert content(home.open_partition("t", 0, TOPIC_ID, CONFIG)) == expected


def test_a_damaged_batch_is_not_copied() -> None:
    move = Move()
    move.append()
    path = "/a/t-0/00000000000000000000.log"
    fd = move.files.open(path, 2)
    move.files.pwrite(fd, b"\xff", 65)
    with pytest.raises(KafkaError) as refused:
        move.future.copy(1000)
    assert refused.value.code == ErrorCode.corrupt_message
    assert content(move.log)


def test_names_are_kafkas() -> None:
    unique = uuid.UUID(int=0xABC)
    name = future_name("a-topic.x", 12, unique)
    assert name == f"a-topic.x-12.{unique.hex}-future"
    assert parse_future_name(name) == ("a-topic.x", 12)
    assert parse_future_name("a-topic.x-12") is None
    assert parse_future_name(f"t-1.{unique.hex}-stray") is None


def test_what_was_left_says_where_it_went_and_where_it_begins() -> None:
    home = uuid.UUID(int=0xABC)
    name = left_name("a-topic.x-7.y", 12, home, 345)
    assert name == f"a-topic.x-7.y-12.{home.hex}.345-moving"
    (left,) = find_left([name, "a-topic.x-7.y-12", future_name("t", 0, home)])
    assert left == (name, ("a-topic.x-7.y", 12), home, 345)
    assert find_left([f"t-0.{home.hex}-moving", f"t-0.{home.hex}.x-moving"]) == []


def longest_topic() -> str:
    topic = "t"
    while not is_name_too_long(topic + "t", 0):
        topic += "t"
    return topic


def test_a_topic_of_the_longest_name_moves_and_leaves_nothing() -> None:
    topic = longest_topic()
    move = Move(topic=topic)
    move.log.truncate_fully_and_start_at(2**62)
    move.append()
    moved = move.promote()
    retire(move.source, move.log)
    names = [name for path in ("/a", "/b") for name in move.files.list_directories(path)]
    assert names == [f"{topic}-0"]
    assert moved.log_start_offset == 2**62
    assert is_name_too_long(topic, 10)
