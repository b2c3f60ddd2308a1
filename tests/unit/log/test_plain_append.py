"""What the plain append does is what the general way does, or it leaves the batch alone."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.appender import LogAppender
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendInfo
from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.record import encode_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def open_log(
    path: str, clock: ManualClock, files: SystemFiles | None = None, **settings: Any
) -> PartitionLog:
    environment = seeded_environment(1, clock, files=files or SystemFiles())
    return PartitionLog.open(path, "t", 0, uuid.UUID(int=1), LogConfig(**settings), environment)


def appender_of(log: PartitionLog) -> LogAppender:
    appender: Any = log.append_as_leader
    found: LogAppender = appender.__self__
    return found


def without_plain(log: PartitionLog) -> PartitionLog:
    appender: Any = appender_of(log)
    appender.append_plain = lambda *_: None
    return log


def batch(
    *, size: int = 10, count: int = 1, timestamp: int = NOW_MS, key: bytes | None = b"k", **options: Any
) -> bytes:
    return encode_batch([(timestamp, key, bytes(size), ())] * count, **options)


def changed(records: bytes, form: str, at: int, value: int) -> bytes:
    """`records` with one field changed, under a right CRC."""
    data = bytearray(records)
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, 17, crc_of_tail(bytes(data[CRC_START:])))
    return bytes(data)


def damaged(records: bytes, how: str) -> bytes:
    """What a client may get wrong."""
    match how:
        case "cut":
            return records[:-1]
        case "no header":
            return records[:40]
        case "more":
            return records + b"\0"
        case "crc":
            return records[:-1] + bytes([records[-1] ^ 1])
        case "magic":
            return changed(records, "b", 16, 3)
        case "base":
            return changed(records, ">q", 0, 1)
        case "count":
            return changed(records, ">i", 57, 9)
        case "none":
            return changed(records, ">i", 57, 0)
        case "control":
            return changed(records, ">h", 21, 0x20)
        case "append time":
            return changed(records, ">h", 21, 0x08)
        case "codec":
            return changed(records, ">h", 21, 0x07)
        case "no sequence":
            return changed(records, ">i", 53, -1)
        case _:
            return records


DAMAGES = [
    *("cut", "no header", "more", "crc", "magic", "base", "count", "none"),
    *("control", "append time", "codec", "no sequence"),
]

requests = st.fixed_dictionaries(
    {
        "leader_epoch": st.sampled_from([3, 3, 3, 3, 2, 4]),
        "producer_id": st.sampled_from([-1, -1, 7, 8]),
        "producer_epoch": st.sampled_from([0, 0, 0, 1]),
        "sequence": st.sampled_from([0, 1, 2, 3]),
        "count": st.sampled_from([1, 1, 2]),
        "size": st.sampled_from([10, 10, 400, 3_000]),
        "key": st.sampled_from([b"k", b"k", None]),
        "later_ms": st.sampled_from([0, 0, 0, -5, 5, -3 * HOUR_MS, 3 * HOUR_MS]),
        "is_transactional": st.sampled_from([False, False, False, True]),
        "damage": st.sampled_from(["", "", "", "", "", *DAMAGES]),
        "passes_ms": st.sampled_from([0, 0, 1, 10, HOUR_MS]),
    }
)

settings = st.sampled_from(
    [
        {},
        {"segment_bytes": 1_000},
        {"segment_ms": 2 * HOUR_MS, "index_interval_bytes": 100},
        {"segment_index_bytes": 40, "index_interval_bytes": 1},
        {"max_message_bytes": 300},
        {"message_timestamp_before_max_ms": HOUR_MS},
        {"message_timestamp_type": "LogAppendTime"},
        {"cleanup_policy": frozenset({"compact"})},
    ]
)


def records_of(request: dict[str, Any], now_ms: int) -> bytes:
    has_producer = request["producer_id"] >= 0
    return damaged(
        batch(
            size=request["size"],
            count=request["count"],
            timestamp=now_ms + request["later_ms"],
            key=request["key"],
            producer_id=request["producer_id"],
            producer_epoch=request["producer_epoch"] if has_producer else -1,
            base_sequence=request["sequence"] if has_producer else -1,
            transactional=has_producer and request["is_transactional"],
        ),
        request["damage"],
    )


def outcome(log: PartitionLog, records: bytes, leader_epoch: int) -> object:
    try:
        return log.append_as_leader(memoryview(records), leader_epoch)
    except KafkaError as refused:
        return refused.code, str(refused), getattr(refused, "record_errors", None)


def state_of(log: PartitionLog) -> object:
    """All that appends change in memory."""
    producers = {
        number: (
            entry.producer_epoch,
            entry.batches,
            entry.last_timestamp,
            entry.current_transaction_first_offset,
        )
        for number, entry in log.producer_state.producers.items()
    }
    segments = [
        (each.base_offset, each.size, each.maximum(), each.first_timestamp(), each.hints, each.is_flushed)
        for each in log.segments
    ]
    ends = log.log_end_offset, log.producer_state.end_offset, log.log_start_offset
    return ends, producers, segments, log.epochs.entries, log.producer_state.first_unstable_offset()


def files_of(directory: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(directory, "t-0").iterdir()}


@given(settings, st.lists(requests, max_size=12))
def test_it_does_what_the_general_way_does(kept: dict[str, Any], wanted: list[dict[str, Any]]) -> None:
    clock = ManualClock(NOW_MS)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        plain, general = open_log(one, clock, **kept), without_plain(open_log(other, clock, **kept))
        for log in (plain, general):
            log.assign_epoch_start(3)
        for request in wanted:
            clock.advance(request["passes_ms"])
            records = records_of(request, clock.now_ms())
            expected = outcome(general, records, request["leader_epoch"])
            assert outcome(plain, records, request["leader_epoch"]) == expected
            assert state_of(plain) == state_of(general)
        for log in (plain, general):
            log.close()
        assert files_of(one) == files_of(other)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    opened = open_log(str(tmp_path), ManualClock(NOW_MS), segment_bytes=1_000)
    opened.assign_epoch_start(3)
    return opened


def test_a_plain_batch_is_taken(log: PartitionLog) -> None:
    appender = appender_of(log)
    assert appender.append_plain(batch(), 3) == AppendInfo(0, 0, -1, 0, False)
    assert appender.append_plain(memoryview(batch(count=3)), 3) == AppendInfo(1, 3, -1, 0, False)
    numbered = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert appender.append_plain(numbered, 3) == AppendInfo(4, 4, -1, 0, False)
    assert log.log_end_offset == log.producer_state.end_offset == 5


@pytest.mark.parametrize(
    ("records", "leader_epoch"),
    [
        (batch(), 2),
        (batch(), 4),
        (batch(size=900), 3),
        (batch(size=1_000), 3),
        (batch(timestamp=NOW_MS + 2 * HOUR_MS), 3),
        (batch(producer_id=7, producer_epoch=0, base_sequence=0), 3),
        (batch(producer_id=7, producer_epoch=0, base_sequence=5), 3),
        (batch() * 2, 3),
        *((damaged(batch(producer_id=9, producer_epoch=0, base_sequence=0), how), 3) for how in DAMAGES),
    ],
    ids=[
        *("older epoch", "newer epoch", "no room", "too large", "too late", "repeated", "ahead", "two"),
        *DAMAGES,
    ],
)
def test_what_is_not_plain_is_left_alone(log: PartitionLog, records: bytes, leader_epoch: int) -> None:
    log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=0), 3)
    before = state_of(log)
    assert appender_of(log).append_plain(records, leader_epoch) is None
    assert state_of(log) == before


def test_it_waits_for_nobody_who_holds_the_lock(log: PartitionLog) -> None:
    is_held, may_end = threading.Event(), threading.Event()
    appender: Any = appender_of(log)

    def hold() -> None:
        with appender._locks.hold_log_end():
            is_held.set()
            may_end.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(20)
    assert appender_of(log).append_plain(batch(), 3) is None
    may_end.set()
    thread.join()
    assert appender_of(log).append_plain(batch(), 3) is not None


def test_what_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    files: Any = SystemFiles()
    log = open_log(str(tmp_path), ManualClock(NOW_MS), files)
    log.assign_epoch_start(3)
    log.append_as_leader(batch(), 3)
    before, write = state_of(log), files.pwritev

    def half(fd: int, parts: Any, position: int) -> int:
        os.pwrite(fd, b"".join(parts)[:30], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.pwritev = half
    with pytest.raises(KafkaError) as refused:
        appender_of(log).append_plain(batch(), 3)
    assert refused.value.code == ErrorCode.kafka_storage_error
    assert state_of(log) == before
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == log.size
    files.pwritev = write
    assert appender_of(log).append_plain(batch(), 3) is not None


def test_an_empty_log_takes_no_more_than_a_segment_holds(log: PartitionLog) -> None:
    assert appender_of(log).append_plain(batch(size=1_000), 3) is None


def test_an_epoch_that_waits_for_the_lock_fences_older_ones(log: PartitionLog) -> None:
    appender: Any = appender_of(log)
    appender._locks.next_epoch = 4
    assert appender.append_plain(batch(), 3) is None
    assert log.log_end_offset == 0


def test_what_a_failed_write_left_is_removed_first(log: PartitionLog) -> None:
    appender: Any = appender_of(log)
    appender._roller.is_unclear = True
    assert appender.append_plain(batch(), 3) is None
    assert log.append_as_leader(batch(), 3).base_offset == 0
    assert appender.append_plain(batch(), 3) == AppendInfo(1, 1, -1, 0, False)


def test_what_was_refused_is_awaited_until_it_comes(log: PartitionLog) -> None:
    first, second = (batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in (0, 1))
    log.refused.add(first)
    assert appender_of(log).append_plain(second, 3) is None
    assert appender_of(log).append_plain(first, 3) is not None
    assert len(log.refused) == 0
    assert appender_of(log).append_plain(second, 3) is not None


def test_a_closed_log_takes_nothing(log: PartitionLog) -> None:
    log.close()
    with pytest.raises(KafkaError) as refused:
        appender_of(log).append_plain(batch(), 3)
    assert refused.value.code == ErrorCode.kafka_storage_error
