"""A finished segment's indexes are built anew, or its end is cut, while one of its batches has a damaged header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from recovery_harness import FILES, TOPIC_ID, open_log, segment_path

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.scan_past_damage import scan_past_damage
from barnabas.records.batch import iterate_headers
from barnabas.records.record import encode_batch

DAY_MS: Final = 86_400_000
NOW_MS: Final = 1_700_000_000_000
LAST_YEAR_MS: Final = NOW_MS - 365 * DAY_MS
LENGTH, OFFSET, MAGIC, DELTA = 8, 0, 16, 23
"""Where these begin in a batch's header; base offset and length are 8 and 4 bytes long, the last offset delta 4."""


def damage(path: Path, number: int, at: int, value: int) -> None:
    """Have one byte of the header of the file's batch `number` be another."""
    data = bytearray(path.read_bytes())
    position, _ = list(iterate_headers(bytes(data)))[number]
    assert data[position + at] != value
    data[position + at] = value
    path.write_bytes(data)


def append(log: PartitionLog, timestamps: Sequence[int]) -> None:
    for timestamp in timestamps:
        log.append_as_leader(encode_batch([(timestamp, None, b"v" * 100, ())]), 1)


WEEK: Final = LogConfig(
    segment_bytes=4_000,
    index_interval_bytes=300,
    retention_ms=7 * DAY_MS,
    message_timestamp_after_max_ms=2**60,
)


def open_with_week(path: Path, recovery_point: int = 0) -> PartitionLog:
    environment = seeded_environment(1, ManualClock(NOW_MS), files=FILES)
    return PartitionLog.open(
        str(path), "t", 0, TOPIC_ID, WEEK, environment, clean_shutdown=False, recovery_point=recovery_point
    )


@pytest.mark.parametrize(
    ("number", "at", "value"),
    [
        pytest.param(1, OFFSET + 7, 5, id="the next one's offset, lowered"),
        pytest.param(1, OFFSET, 0x80, id="the next one's offset, negative"),
        pytest.param(0, MAGIC, 3, id="its own magic"),
        pytest.param(0, OFFSET + 5, 0x10, id="its own offset, raised"),
        pytest.param(0, OFFSET + 7, 2, id="its own offset, lowered"),
        pytest.param(0, DELTA + 3, 1, id="its own delta"),
        pytest.param(0, DELTA, 0x80, id="its own delta, negative"),
        pytest.param(0, LENGTH, 0x20, id="its own length"),
        pytest.param(0, LENGTH, 0x80, id="its own length, negative"),
        pytest.param(0, LENGTH + 2, 0x04, id="its own length, some batches more"),
        pytest.param(0, LENGTH + 3, 0x01, id="its own length, next to nothing"),
    ],
)
def test_retention_does_not_delete_too_early_for_one_damaged_header(
    tmp_path: Path, number: int, at: int, value: int
) -> None:
    """What was filled in of last year, and one record of today, with which a segment begins. After a crash nobody
    vouches for the indexes of the segment before the active one.
    """
    log = open_with_week(tmp_path)
    append(log, [LAST_YEAR_MS] * 23)
    assert len(log.segment_base_offsets) == 1
    append(log, [NOW_MS - 1_000])
    while len(log.segment_base_offsets) < 3:
        append(log, [LAST_YEAR_MS])
    second, third = log.segment_base_offsets[1:]
    assert second == 23
    end = log.log_end_offset
    log.flush()
    log.release()
    damage(segment_path(log, 1), number, at, value)
    again = open_with_week(tmp_path, recovery_point=third)
    assert again.segments[1].largest_timestamp() == NOW_MS - 1_000
    assert again.delete_old_segments(end) == 1
    assert again.log_start_offset == second


LARGE: Final = LogConfig(
    segment_bytes=100_000, index_interval_bytes=300, retention_ms=-1, message_timestamp_after_max_ms=2**60
)


@pytest.mark.parametrize(
    ("timestamp", "lost"),
    [(1_000, ()), (-1, ()), (1_000, (".timeindex",))],
    ids=["with times", "without times", "without the index of times"],
)
def test_a_damaged_length_costs_no_more_than_what_is_up_to_the_next_index_entry(
    tmp_path: Path, timestamp: int, lost: tuple[str, ...]
) -> None:
    """However often the log is opened: an index that ended before the damage would have the next opening cut there."""
    log = open_log(tmp_path, config=LARGE)
    append(log, [timestamp] * 30)
    log.flush()
    log.close()
    path = segment_path(log, 0)
    damage(path, 4, LENGTH, 0x20)
    for suffix in lost:
        path.with_suffix(suffix).unlink()
    for _ in range(3):
        log = open_log(tmp_path, recovery_point=30, clean=True, config=LARGE)
        assert log.log_end_offset == 30
        (segment,) = log.segments
        found = [segment.find(offset) for offset in range(30)]
        assert sum(each is not None and each.header.base_offset == at for at, each in enumerate(found)) >= 28
        log.close()


@pytest.mark.parametrize("entry", [b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_an_index_entry_with_a_negative_position_is_none(tmp_path: Path, entry: bytes) -> None:
    log = open_log(tmp_path, config=LARGE)
    append(log, range(1_000, 1_030))
    log.flush()
    log.close()
    path = segment_path(log, 0).with_suffix(".index")
    data = bytearray(path.read_bytes())
    data[5 * 8 + 4 : 5 * 8 + 8] = entry
    path.write_bytes(data)
    (segment,) = open_log(tmp_path, recovery_point=30, clean=True, config=LARGE).segments
    for offset in range(30):
        found = segment.find(offset)
        assert found is not None
        assert found.header.base_offset == offset


def test_index_entries_that_do_not_rise_have_no_batch_come_twice(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LARGE)
    append(log, range(1_000, 1_030))
    (segment,) = log.segments
    opened = segment.open()
    entries = [bytes(opened.offset_index.entries[at : at + 8]) for at in range(0, 8 * 10, 8)]
    entries[3], entries[8] = entries[8], entries[3]
    entries.insert(5, entries[5])
    opened.offset_index.entries = bytearray(b"".join(entries))
    walked = [each.position for each in scan_past_damage(opened.file, opened.offset_index, 0, segment.size)]
    assert walked == [position for position, _ in iterate_headers(segment_path(log, 0).read_bytes())]


OLD_MS, NEW_MS = 1_000, 5_000
"""The time of what is to go, or stays; and of what is written afterwards."""


@pytest.mark.parametrize(
    ("number", "at", "value", "ends"),
    [
        pytest.param(6, OFFSET + 5, 1, {6}, id="the first to go: its offset, raised"),
        pytest.param(6, OFFSET + 7, 7, {6}, id="to that of the next one"),
        pytest.param(6, OFFSET + 3, 1, {6}, id="to what no index can hold"),
        pytest.param(6, OFFSET + 7, 2, {6}, id="lowered"),
        pytest.param(6, OFFSET + 7, 5, {5, 6}, id="lowered to that of the last to stay"),
        pytest.param(6, DELTA + 3, 1, {6}, id="its delta"),
        pytest.param(6, MAGIC, 3, {6}, id="its magic"),
        pytest.param(6, LENGTH, 0x20, {6}, id="its length"),
        pytest.param(6, LENGTH + 3, 0x01, {6}, id="its length, next to nothing"),
        pytest.param(
            7, OFFSET + 7, 6, {6}, id="the next one: its offset, lowered to that of the first to go"
        ),
        pytest.param(7, MAGIC, 3, {6}, id="the next one: its magic"),
        pytest.param(7, LENGTH, 0x20, {6}, id="the next one: its length"),
        pytest.param(
            5, OFFSET + 7, 6, {5}, id="the last to stay: its offset, raised to that of the first to go"
        ),
        pytest.param(5, MAGIC, 3, {5}, id="the last to stay: its magic"),
        pytest.param(5, LENGTH, 0x80, {5}, id="the last to stay: its length, negative"),
        pytest.param(5, LENGTH + 3, 0xF0, {5}, id="the last to stay: its length, amid the next one"),
        pytest.param(5, LENGTH + 3, 0x50, {5}, id="the last to stay: its length, amid itself"),
        pytest.param(4, LENGTH, 0x20, {4, 6}, id="one that stays: its length, which hides what follows"),
        pytest.param(3, OFFSET + 5, 1, {6}, id="one that stays: its offset"),
    ],
)
@pytest.mark.parametrize("count", [7, 8, 20])
@pytest.mark.parametrize("interval", [10_000, 200, 100])
def test_nothing_stays_of_what_is_truncated(
    tmp_path: Path, interval: int, count: int, number: int, at: int, value: int, ends: set[int]
) -> None:
    """Where a damaged header hides which records are to go, those in doubt go with them: the log then ends before them,
    and they are fetched again. What a leader does not have would be read with a right checksum.
    """
    config = LogConfig(
        segment_bytes=10**6,
        index_interval_bytes=interval,
        retention_ms=-1,
        message_timestamp_after_max_ms=2**60,
    )
    log = open_log(tmp_path, config=config)
    append(log, [OLD_MS] * max(count, number + 1))
    log.flush()
    (segment,) = log.segments
    path = segment_path(log, 0)
    begins = [position for position, _ in iterate_headers(path.read_bytes())]
    damage(path, number, at, value)
    end = log.truncate_to(6)
    assert end in ends
    assert (log.log_end_offset, segment.size, path.stat().st_size) == (end, begins[end], begins[end])
    assert segment.maximum() == (OLD_MS, 0)
    append(log, [NEW_MS] * 3)
    written = path.read_bytes()[begins[end] :]
    assert [header.base_offset for _, header in iterate_headers(written)] == [end, end + 1, end + 2]
    log.close()


@pytest.mark.parametrize("bit", [0x80, 0x40, 0x01])
def test_what_is_truncated_amid_damage_is_what_was_to_be(tmp_path: Path, bit: int) -> None:
    """And the log goes on: appends fail for nothing that an index cannot hold."""
    config = LogConfig(
        segment_bytes=10**6, index_interval_bytes=1_200, retention_ms=-1, message_timestamp_after_max_ms=2**60
    )
    log = open_log(tmp_path, config=config)
    append(log, [1_000, 1_001, 1_002, 2_000, 1_004, 1_005, *range(3_000, 3_014)])
    log.flush()
    log.close()
    path = segment_path(log, 0)
    at_sixth, _ = list(iterate_headers(path.read_bytes()))[6]
    damage(path, 3, OFFSET, bit)
    log = open_log(tmp_path, recovery_point=20, clean=True, config=config)
    log.truncate_to(6)
    assert (log.log_end_offset, log.segments[0].size) == (6, at_sixth)
    assert log.segments[0].maximum() == (2_000, 2), "the time counts, the damaged offset does not"
    append(log, range(4_000, 4_060))
    answer = log.offset_for_timestamp(4_030)
    assert answer is not None
    assert answer.offset == 36
    log.close()
