"""A truncation at a damaged batch: what it reads, what it leaves where the disk refuses, and what of transactions."""

from __future__ import annotations

import errno
import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest
from disk_faults import FaultyFiles
from recovery_harness import FILES, TOPIC_ID, fill, open_log, segment_path

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.scan_past_damage import is_whole
from barnabas.log.segments.segment import Segment
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import LOG_OVERHEAD, iterate_headers
from barnabas.records.control import encode_marker
from barnabas.records.record import decode_records, encode_batch

CONFIG: Final = LogConfig(
    segment_bytes=10**6, index_interval_bytes=200, retention_ms=-1, message_timestamp_after_max_ms=2**60
)
LENGTH: Final = 8
"""Where a batch's length begins in its header."""


def damage_length(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    position, _ = list(iterate_headers(bytes(data)))[number]
    data[position + LENGTH] = 0x20
    path.write_bytes(data)


def open_on(path: Path, files: Files) -> PartitionLog:
    environment = seeded_environment(1, ManualClock(1_000), files=files)
    return PartitionLog.open(str(path), "t", 0, TOPIC_ID, CONFIG, environment, clean_shutdown=False)


def numbers(log: PartitionLog, end: int = 1_000) -> list[int]:
    """What `fill` wrote, by offset, before the offset `end`."""
    found: list[int] = []
    while len(found) < end and (data := log.read(len(found), 1)):
        position, header = next(iter(iterate_headers(data)))
        for record in decode_records(data[position : position + header.size_in_bytes]):
            assert record.offset == len(found)
            assert record.value is not None
            found.append(int(record.value.rstrip(b"x")))
    return found


@pytest.mark.parametrize("number", [4, 5])
def test_a_call_that_fails_leaves_what_was_to_stay(tmp_path: Path, number: int) -> None:
    """Each system call in turn, the reads by which the cut is found with them. The log has to be opened anew then, and
    what is before the damage is there; where a read of the cut is refused, nothing has gone.
    """
    ends = []
    for call in itertools.count(1):
        path = tmp_path / str(call)
        files = FaultyFiles(FILES)
        log = open_on(path, cast(Files, files))
        fill(log, 20)
        log.flush()
        damage_length(segment_path(log, 0), number)
        try:
            with files.failing(call, 5):
                log.truncate_to(6)
        except KafkaError:
            assert log.is_trusted == (call == 1), "where its place cannot be looked at it goes on as it was"
            log.release()
            size = segment_path(log, 0).stat().st_size
            ends.append(size)
            log = open_on(path, cast(Files, files))
        assert number <= log.log_end_offset <= 20
        assert numbers(log)[:number] == list(range(number))
        if not files.refused:
            break
        fill(log, 1)
        assert numbers(log)[: log.log_end_offset] == [*range(log.log_end_offset)]
        log.release()
    assert ends[0] == max(ends) > min(ends), "reads come first"


def note_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths in bytes that are asked of any segment's file from now on."""
    lengths: list[int] = []
    read = SegmentFile.read

    def noted(self: SegmentFile, position: int, length: int, *, nowait: bool = False) -> bytes | memoryview:
        lengths.append(length)
        return read(self, position, length, nowait=nowait)

    monkeypatch.setattr(SegmentFile, "read", noted)
    return lengths


def test_a_length_of_all_the_rest_is_read_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, config=CONFIG)
    fill(log, 20)
    log.flush()
    path = segment_path(log, 0)
    damage_length(path, 4)
    size = 0x30_00_00_00
    with path.open("r+b") as file:
        file.truncate(size)
    file = SegmentFile(FILES, str(path))
    whole = list(itertools.islice(scan_headers(file, 0, size), 5))
    lengths = note_reads(monkeypatch)
    assert [is_whole(file, each, size) for each in whole] == [True, True, True, True, False]
    assert sum(lengths) > 0x20_00_00_00, "the damaged one was read"
    assert max(lengths) <= 1024 * 1024


def test_recovery_reads_such_a_length_part_by_part_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, config=CONFIG)
    fill(log, 20)
    log.flush()
    log.release()
    path = segment_path(log, 0)
    damage_length(path, 4)
    with path.open("r+b") as file:
        file.truncate(0x30_00_00_00)
    lengths = note_reads(monkeypatch)
    again = open_log(tmp_path, config=CONFIG)
    assert again.log_end_offset == 4
    assert sum(lengths) > 0x20_00_00_00, "the damaged one was read"
    assert max(lengths) <= 1024 * 1024


def test_a_transaction_whose_marker_is_cut_is_not_among_the_aborted(tmp_path: Path) -> None:
    """The marker is where the log ends now, before what was asked for."""
    log = open_log(tmp_path, config=CONFIG)
    fill(log, 3)
    batch = encode_batch(
        [(1_000, None, b"v" * 100, ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(batch, 0, guard=UNGUARDED)
    fill(log, 1)
    marker = encode_marker(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1_000
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    fill(log, 10)
    log.flush()
    assert [each.last_offset for each in log.aborted_transactions(0, 10)] == [5]
    damage_length(segment_path(log, 0), 5)
    assert log.truncate_to(6) == 5
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset(log.log_end_offset) == 3
    fill(log, 4)
    log.flush()
    log.close()
    again = open_log(tmp_path, config=CONFIG, recovery_point=9, clean=True)
    assert again.aborted_transactions(0, 10) == []
    assert again.last_stable_offset(again.log_end_offset) == 3


def damaged_to(path: Path, number: int, following: int) -> None:
    """Have the batch `number` say that it is as long as up to the batch `following`, or to the end."""
    data = bytearray(path.read_bytes())
    begins = [position for position, _ in iterate_headers(bytes(data))] + [len(data)]
    length = begins[following] - begins[number] - LOG_OVERHEAD
    struct.pack_into(">i", data, begins[number] + LENGTH, length)
    path.write_bytes(data)


@pytest.mark.parametrize("interval", [10_000, 200])
@pytest.mark.parametrize(
    ("following", "asked"), [(7, 6), (10, 6), (7, 5), (10, 9)], ids=["later", "end", "before", "late"]
)
def test_a_length_that_leads_right_to_another_batch_keeps_nothing(
    tmp_path: Path, following: int, asked: int, interval: int
) -> None:
    """What the fifth batch seems to hold is the sixth and others, whole, with what was to go."""
    config = replace(CONFIG, index_interval_bytes=interval)
    log = open_log(tmp_path, config=config)
    fill(log, 10)
    log.flush()
    path = segment_path(log, 0)
    begins = [position for position, _ in iterate_headers(path.read_bytes())]
    damaged_to(path, 4, following)
    end = log.truncate_to(asked)
    assert end <= asked
    assert path.stat().st_size <= begins[asked]
    fill(log, 1)
    assert numbers(log, 4) == [0, 1, 2, 3]
    stays = path.read_bytes()
    assert all(b"%d" % gone + b"x" * 100 not in stays for gone in range(max(asked, end + 1), 10))
    log.close()


def test_a_truncation_that_cannot_be_finished_is_no_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stops it, be it want of memory: nothing is appended behind what is half done."""
    log = open_log(tmp_path, config=CONFIG)
    fill(log, 10)

    def without_memory(_: Segment, __: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Segment, "cut_at", without_memory)
    with pytest.raises(MemoryError):
        log.truncate_to(6)
    assert not log.is_trusted
    with pytest.raises(KafkaError, match="opened and checked anew"):
        fill(log, 1)
    assert numbers(log) == list(range(10)), "what is there can be read"


@pytest.mark.parametrize("fully", [False, True])
def test_what_cannot_be_cleared_up_before_a_cut_leaves_the_log_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fully: bool
) -> None:
    """The rest of a write that failed. Nothing that was deleted may be read again."""
    log = open_log(tmp_path, config=CONFIG)
    fill(log, 12)
    log.flush()
    log.maybe_increment_log_start_offset(8)

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(SegmentFile, "write", refused)
    monkeypatch.setattr(Segment, "remove_rest", refused)
    with pytest.raises(KafkaError):
        fill(log, 1)
    with pytest.raises(KafkaError):
        (log.truncate_fully_and_start_at if fully else log.truncate_to)(6)
    assert log.is_trusted
    assert (log.log_start_offset, log.recovery_point, log.log_end_offset) == (8, 12, 12)
    monkeypatch.undo()
    assert log.truncate_to(6) == 6


SMALL: Final = replace(CONFIG, segment_bytes=1_000, index_interval_bytes=10_000)
"""Segments of five batches."""


def with_damaged_tail(path: Path, *, marker: bool = False) -> PartitionLog:
    """A log of fifteen records, opened after a crash, in whose first segment the last two batches cannot be read."""
    log = open_log(path, config=SMALL)
    if marker:
        batch = encode_batch(
            [(1_000, None, b"0" + b"x" * 100, ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log.append_as_leader(batch, 0, guard=UNGUARDED)
        fill(log, 3)
        aborts = encode_marker(
            committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1_000
        )
        log.append_as_leader(aborts, 0, origin=AppendOrigin.COORDINATOR)
    while len(log.segment_base_offsets) < 3:
        fill(log, 1)
    second, third = log.segment_base_offsets[1:]
    log.flush()
    log.release()
    damage_length(segment_path(log, 0), 3)
    again = open_log(path, config=SMALL, recovery_point=third)
    assert again.segments[0].size < segment_path(again, 0).stat().st_size
    assert second >= 5
    return again


def test_what_cannot_be_read_behind_the_cut_does_not_come_back(tmp_path: Path) -> None:
    """The log goes on in front of it with a batch of the same size: what stood behind would follow that again."""
    log = with_damaged_tail(tmp_path)
    assert log.truncate_to(3) == 3
    assert segment_path(log, 0).stat().st_size == log.segments[0].size
    fill(log, 1)
    log.flush()
    log.release()
    again = open_log(tmp_path, config=SMALL)
    assert again.log_end_offset == 4
    assert numbers(again) == [0, 1, 2, 3]


def test_what_cannot_be_read_before_the_cut_is_copied_again(tmp_path: Path) -> None:
    """The log ends where what can be read of it does, rather than with a hole."""
    log = with_damaged_tail(tmp_path)
    assert log.truncate_to(4) == 3
    fill(log, 6)
    end = log.log_end_offset
    log.flush()
    log.release()
    for recovery_point in (0, end):
        again = open_log(tmp_path, config=SMALL, recovery_point=recovery_point)
        assert numbers(again) == list(range(9))
        again.release()


def test_an_abort_whose_marker_cannot_be_read_goes_with_what_is_cut(tmp_path: Path) -> None:
    log = with_damaged_tail(tmp_path, marker=True)
    assert [each.last_offset for each in log.aborted_transactions(0, 10)] == [4]
    assert log.truncate_to(4) == 3
    assert log.aborted_transactions(0, 10) == []
