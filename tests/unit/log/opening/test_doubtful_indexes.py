"""Indexes that a crash may have spoiled are built anew, whatever fails meanwhile."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest
from disk_faults import FaultyFiles

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import encode_batch

TOPIC_ID = uuid.UUID(int=7)
CONFIG = LogConfig(
    segment_bytes=20_000, index_interval_bytes=200, retention_ms=-1, message_timestamp_after_max_ms=2**60
)
START_MS = 1_700_000_000_000
WANTED = 50
"""The record whose time is looked up is the one at this offset."""


def open_log(path: Path, files: FaultyFiles) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(str(path), "c" * 22, 1, seeded_environment(files=files))
    return directory, directory.open_partition("t", 0, TOPIC_ID, CONFIG)


def found(log: PartitionLog) -> int:
    answer = log.offset_for_timestamp(START_MS + WANTED)
    assert answer is not None
    return answer.offset


def crash_with_a_former_index(path: Path, files: FaultyFiles) -> None:
    """A segment was rolled and its records synced; then the machine stopped, and of its time index the disk has what
    looks like one, with other times.
    """
    directory, log = open_log(path, files)
    for number in range(1_000):
        if len(log.segment_base_offsets) == 2:
            break
        log.append_as_leader(encode_batch([(START_MS + number, b"k", b"v" * 100, ())]), 0)
    log.flush_finished()
    directory.write_checkpoints()
    directory.abandon()
    index = path / "t-0" / f"{0:020}.timeindex"
    entries = list(struct.iter_unpack(">qi", index.read_bytes()))
    assert len(entries) > 3
    former = [(time - 1_000, offset) for time, offset in entries[:-1]]
    index.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in (*former, entries[-1])))


def test_they_are_right_again(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    crash_with_a_former_index(tmp_path, files)
    _, log = open_log(tmp_path, files)
    assert log.has_doubtful_indexes
    assert found(log) == WANTED
    assert not log.has_doubtful_indexes


@pytest.mark.parametrize("call", range(1, 16))
def test_a_call_that_fails_meanwhile_leaves_them_in_doubt(tmp_path: Path, call: int) -> None:
    files = FaultyFiles(SystemFiles())
    crash_with_a_former_index(tmp_path, files)
    directory, log = open_log(tmp_path, files)
    with files.failing(call, 5):
        try:
            assert found(log) == WANTED
        except KafkaError:
            assert files.refused
    assert found(log) == WANTED
    directory.close()
    _, log = open_log(tmp_path, files)
    assert found(log) == WANTED


def test_a_sync_leaves_none_in_doubt(tmp_path: Path) -> None:
    """The node asks for one soon after its start, so that no stop has to walk through segments."""
    files = FaultyFiles(SystemFiles())
    crash_with_a_former_index(tmp_path, files)
    _, log = open_log(tmp_path, files)
    log.flush()
    assert not log.has_doubtful_indexes
    assert found(log) == WANTED


@pytest.mark.parametrize(
    ("at", "damage"),
    [(slice(3, 4), b"\x01"), (slice(5, 6), b"\x10"), (slice(0, 8), bytes(8))],
    ids=["an offset that no entry can hold", "a greater offset", "a lesser offset"],
)
def test_one_damaged_batch_hides_nothing_of_the_others(tmp_path: Path, at: slice, damage: bytes) -> None:
    """Retention goes by the greatest time, and what is read by the entries."""
    files = FaultyFiles(SystemFiles())
    crash_with_a_former_index(tmp_path, files)
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    batches = list(iterate_headers(bytes(data)))
    position, _ = batches[1]
    data[position + at.start : position + at.stop] = damage
    path.write_bytes(data)
    _, log = open_log(tmp_path, files)
    segment, last = log.segments[0], batches[-1][1]
    assert log.has_doubtful_indexes
    assert segment.largest_timestamp() == last.max_timestamp
    assert len(segment.open().offset_index) > 10
    found_there = segment.find(last.base_offset)
    assert found_there is not None
    assert found_there.header == last
