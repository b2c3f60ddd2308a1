"""What compaction keeps, removes, and leaves alone."""

from __future__ import annotations

import os
import shutil
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from compaction_harness import RETENTION_MS, compact, make_config, open_log, put, read_all, read_batches

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.checkpoint_file import CLEANER_OFFSET_FILE, read_offsets
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import measure
from barnabas.log.cleaning.cleaner import CleaningAbortedError
from barnabas.log.cleaning.offset_map import ENTRY_BYTES, OffsetMap
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_batches_of_which_all_stays_are_untouched_and_others_keep_their_fields(
    tmp_path: Path, clock: ManualClock
) -> None:
    log = open_log(str(tmp_path), clock, segment_bytes=100_000)
    put(
        log,
        clock,
        (b"a", b"1"),
        (b"b", b"1"),
        (b"c", b"1"),
        compression=4,
        producer_id=5,
        producer_epoch=2,
        base_sequence=7,
    )
    clock.advance(5)
    put(log, clock, (b"a", b"2"), (b"c", b"2"), compression=1)
    before = list(read_batches(log))
    log.roll()
    counts = compact(log, clock)
    after = list(read_batches(log))
    assert after[1] == before[1]
    old, new = before[0][0], after[0][0]
    assert new._replace(batch_length=0, crc=0, record_count=0) == old._replace(
        batch_length=0, crc=0, record_count=0
    )
    assert [(r.offset, r.key) for r in read_all(log)] == [(1, b"b"), (3, b"a"), (4, b"c")]
    assert (counts.records_read, counts.records_written) == (5, 3)
    assert log.max_timestamp() == (3, clock.now_ms(), 0)


def test_tombstones_stay_for_their_retention_and_then_go(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(str(tmp_path), clock)
    put(log, clock, (b"a", b"1"))
    put(log, clock, (b"a", None), (b"b", b"1"))
    log.roll()
    compact(log, clock)
    header = next(header for header, _ in read_batches(log))
    assert header.has_delete_horizon
    assert header.base_timestamp == clock.now_ms() + RETENTION_MS
    tombstone, other = read_all(log)
    assert (tombstone.offset, tombstone.value, tombstone.timestamp) == (1, None, clock.now_ms())
    for wait, count in ((RETENTION_MS - 1, 2), (1, 1)):
        clock.advance(wait)
        put(log, clock, (b"z", b"1"))
        log.roll()
        compact(log, clock)
        assert [record.key for record in read_all(log)].count(b"a") == count - 1
    assert other in read_all(log)


def test_small_segments_become_one_and_their_snapshots_go(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(str(tmp_path), clock)
    for number in range(40):
        put(
            log,
            clock,
            (b"k%d" % (number % 3), b"v" * 30),
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
    assert len(log.segment_base_offsets) > 5
    slow = log.locate(0, 200)
    assert slow is not None
    expected = slow.read()
    held = log.segments
    compact(log, clock)
    # Grouped by their sizes before, as in Kafka: what has shrunk comes together the next time.
    put(log, clock, (b"other", b"v"))
    log.roll()
    compact(log, clock)
    assert log.segment_base_offsets == (0, 36, 41)
    assert [record.offset for record in read_all(log)] == [37, 38, 39, 40]
    assert slow.read() == expected
    assert held[1].find(held[1].base_offset) is not None
    assert {int(path.stem) for path in Path(log.directory).glob("*.snapshot")} <= set(
        log.segment_base_offsets
    )
    assert not list(Path(log.directory).glob("*.deleted"))
    log.release()
    again = open_log(str(tmp_path), clock)
    assert (again.recovery_report.bytes_truncated, again.log_end_offset) == (0, 41)
    assert [record.offset for record in read_all(again)] == [37, 38, 39, 40]


def test_what_is_young_undecided_or_active_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(str(tmp_path), clock, min_compaction_lag_ms=100, max_compaction_lag_ms=500)
    put(log, clock, (b"a", b"1"))
    log.roll()
    clock.advance(99)
    assert measure(log, 1, clock.now_ms()).cleanable_bytes == 0
    clock.advance(2)
    to_clean = measure(log, 1, clock.now_ms())
    assert to_clean.cleanable_bytes == log.size
    assert (to_clean.first_uncleanable_offset, to_clean.dirty_ratio, to_clean.is_overdue) == (1, 1.0, False)
    assert measure(log, 0, clock.now_ms()).cleanable_bytes == 0
    log.update_config(make_config(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500))
    assert not measure(log, 1, clock.now_ms()).is_due
    clock.advance(400)
    assert measure(log, 1, clock.now_ms()).is_due


def test_a_truncation_or_retention_meanwhile_ends_the_cleaning(tmp_path: Path, clock: ManualClock) -> None:
    for disturb in (
        lambda log: log.truncate_to(1),
        lambda log: (log.maybe_increment_log_start_offset(2), log.delete_old_segments(4)),
        lambda log: log.release(),
    ):
        directory = tmp_path / str(id(disturb))
        log = open_log(str(directory), clock)
        for number in range(4):
            put(log, clock, (b"k", b"%d" % number))
            log.roll()
        to_clean = measure(log, 4, clock.now_ms())
        done: list[int] = []

        def once(
            _: int,
            log: PartitionLog = log,
            done: list[int] = done,
            act: Callable[[PartitionLog], object] = disturb,
        ) -> None:
            if not done:
                done.append(1)
                act(log)

        with pytest.raises(CleaningAbortedError):
            cleaner.clean(to_clean, clock.now_ms(), once)
        assert not list(directory.rglob("*.cleaned"))
        assert log.first_dirty_offset == -1


def test_a_bad_batch_harms_nothing(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(str(tmp_path), clock)
    put(log, clock, (b"a", b"1" * 50))
    put(log, clock, (b"a", b"2" * 50))
    log.roll()
    path = Path(log.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    with pytest.raises(KafkaError, match="CRC"):
        compact(log, clock)
    assert path.read_bytes() == data
    assert not list(Path(log.directory).glob("*.cleaned"))


@pytest.mark.parametrize("is_older", [False, True], ids=["empty", "older"])
def test_nothing_is_written_in_another_directory(tmp_path: Path, clock: ManualClock, is_older: bool) -> None:
    """A start after a crash would find something of a log there, and begin it anew instead of missing it."""
    log = open_log(str(tmp_path / "logs"), clock)
    for number in range(4):
        put(log, clock, (b"k", b"%d" % number))
        if is_older and number == 3:
            continue
        log.roll()
    there, away = Path(log.directory), tmp_path / "away"
    there.rename(away)
    if is_older:
        shutil.copytree(away, there)
        os.truncate(there / f"{3:020d}.log", 1)
    else:
        there.mkdir()
    files = sorted((path.name, path.stat().st_size) for path in there.glob("*.log*"))
    to_clean = measure(log, 3, clock.now_ms())
    written: list[Path] = []
    with pytest.raises(KafkaError):
        cleaner.clean(to_clean, clock.now_ms(), lambda _: written.extend(there.glob("*.cleaned")))
    assert written == []
    assert sorted((path.name, path.stat().st_size) for path in there.glob("*.log*")) == files
    shutil.rmtree(there)
    away.rename(there)
    compact(log, clock)
    assert [record.value for record in read_all(log)] == ([b"2", b"3"] if is_older else [b"3"])


def test_transactions(tmp_path: Path, clock: ManualClock) -> None:
    """Aborted records go, their marker only after its retention; a commit's marker while its records stay."""
    log = open_log(str(tmp_path), clock, segment_bytes=100_000)

    def end(producer_id: int, *, committed: bool) -> None:
        marker = encode_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=clock.now_ms(),
        )
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)

    def write(producer_id: int, sequence: int, key: bytes) -> None:
        record = (clock.now_ms(), key, b"v%d" % producer_id, ())
        batch = encode_batch(
            [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append_as_leader(batch, 0, guard=UNGUARDED)

    put(log, clock, (b"a", b"first"))
    write(1, 0, b"a")
    write(2, 0, b"b")
    end(1, committed=False)
    end(2, committed=True)
    write(1, 1, b"c")
    end(1, committed=True)
    log.roll()
    compact(log, clock)
    assert [(r.offset, r.key) for r in read_all(log)] == [(0, b"a"), (2, b"b"), (5, b"c")]
    assert [(a.first_offset, a.last_offset) for a in log.aborted_transactions(0, 7)] == [(1, 3)]
    assert [h.base_offset for h, _ in read_batches(log) if h.is_control] == [3, 4, 6]
    for wait in (0, RETENTION_MS):
        clock.advance(wait)
        put(log, clock, (b"z", b"1"))
        log.roll()
        compact(log, clock)
    assert [h.base_offset for h, _ in read_batches(log) if h.is_control] == [4, 6]
    assert log.aborted_transactions(0, 9) == []
    write(3, 0, b"d")
    log.roll()
    assert measure(log, log.log_end_offset, clock.now_ms()).cleanable_bytes == 0


def test_what_a_producer_may_send_again_is_known_after_a_crash(tmp_path: Path, clock: ManualClock) -> None:
    """Its answers were lost; the log was compacted, and is read again from its beginning."""
    log = open_log(str(tmp_path), clock, segment_bytes=100_000)

    def batch(sequence: int) -> bytes:
        record = (clock.now_ms(), b"k", b"%d" % sequence, ())
        return encode_batch([record], producer_id=1, producer_epoch=0, base_sequence=sequence)

    offsets = [log.append_as_leader(batch(each), 0, guard=UNGUARDED).base_offset for each in range(7)]
    log.roll()
    compact(log, clock)
    assert [r.offset for r in read_all(log)] == [6]
    assert [h.base_offset for h, _ in read_batches(log)] == [2, 3, 4, 5, 6]
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()  # as where the log is not known to have been on the disk when they were written
    again = open_log(str(tmp_path), clock, segment_bytes=100_000)
    assert [
        again.append_as_leader(batch(each), 0, guard=UNGUARDED).base_offset for each in range(2, 7)
    ] == offsets[2:]


def test_what_was_replaced_goes_at_once(tmp_path: Path, clock: ManualClock) -> None:
    """Its file has no name then, but its bytes stay on the disk while anybody has it open: a cleaning takes the room of
    a segment, and not that of all."""
    log = open_log(str(tmp_path), clock)
    while len(log.segments) < 12:
        put(log, clock, (b"k%d" % log.log_end_offset, b"v" * 50))
    old = [weakref.ref(segment) for segment in log.segments[:-1]]
    alive = [0]
    cleaner.clean(
        measure(log, log.log_end_offset, clock.now_ms()),
        clock.now_ms(),
        lambda _: alive.append(sum(segment() is not None for segment in old)),
    )
    assert max(alive) == len(old)
    assert alive[-1] <= 2
    assert log.first_dirty_offset == log.segments[-1].base_offset


def test_the_map_is_bounded() -> None:
    offsets = OffsetMap(ENTRY_BYTES * 2)
    assert (offsets.keys_max, offsets.is_full, offsets.get(b"a")) == (2, False, -1)
    offsets.put(b"a", 3)
    offsets.put(b"b", 4)
    offsets.put(b"a", 5)
    assert (len(offsets), offsets.is_full, offsets.get(b"a"), offsets.get(b"b")) == (2, True, 5, 4)


def test_records_without_a_key_go(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """They come from the time before the topic was compacted."""
    log = open_log(str(tmp_path), clock, cleanup_policy=frozenset({"delete"}))
    log.append_as_leader(encode_batch([(1, None, b"x", ()), (1, b"a", b"1", ())]), 0)
    log.update_config(make_config())
    log.roll()
    compact(log, clock)
    assert [record.offset for record in read_all(log)] == [1]
    (said,) = (record for record in caplog.records if "without a key" in record.getMessage())
    assert vars(said)["fields"] == {"log": log.directory, "records": 1}


def test_the_greatest_timestamp_is_that_of_a_record_that_is_there(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(str(tmp_path), clock)
    batch = encode_batch([(900, b"a", b"1", ())], producer_id=1, producer_epoch=0, base_sequence=0)
    log.append_as_leader(batch, 0)
    log.append_as_leader(encode_batch([(500, b"a", b"2", ())]), 0)
    log.roll()
    compact(log, clock)
    assert [header.record_count for header, _ in read_batches(log)] == [0, 1]
    assert log.max_timestamp() == (1, 500, 0)
    assert log.offset_for_timestamp(600) is None
    assert log.offset_for_timestamp(400) == (1, 500, 0)


def test_the_checkpoint_outlives_a_restart_and_follows_truncations_and_deletions(
    tmp_path: Path, clock: ManualClock
) -> None:
    def read() -> dict[tuple[str, int], int]:
        return read_offsets(SystemFiles(), str(tmp_path / CLEANER_OFFSET_FILE))

    directory = LogDirectory.open(str(tmp_path), "abcdefghijklmnopqrstuv", 1, seeded_environment(clock=clock))
    for topic in ("t", "u"):
        log = directory.open_partition(topic, 0, uuid.UUID(int=9), make_config())
        for number in range(4):
            put(log, clock, (b"k%d" % number, b"v"))
        log.roll()
        compact(log, clock)
    directory.write_cleaner_checkpoint()
    assert read() == {("t", 0): 4, ("u", 0): 4}
    directory.close()
    directory = LogDirectory.open(str(tmp_path), "abcdefghijklmnopqrstuv", 1, seeded_environment(clock=clock))
    log = directory.open_partition("t", 0, uuid.UUID(int=9), make_config())
    assert log.first_dirty_offset == 4
    log.truncate_to(2)
    directory.write_checkpoints()
    assert read() == {("t", 0): 2, ("u", 0): 4}
    directory.delete_partition("t", 0)
    assert read() == {("u", 0): 4}
    directory.close()
