"""A log whose directory is away while it is open, and something else stands in its place: nothing is begun there."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.record import decode_records, encode_batch

TOPIC_ID = uuid.UUID(int=7)


def open_log(path: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(str(path), "c", 1, seeded_environment(1, ManualClock()))
    config = LogConfig(segment_bytes=600, message_timestamp_after_max_ms=2**60)
    return directory, directory.open_partition("t", 0, TOPIC_ID, config)


def append(log: PartitionLog, value: bytes = b"") -> None:
    log.append_as_leader(encode_batch([(0, None, value + bytes(200), ())]), 1)


def nothing(away: Path, there: Path) -> None:
    pass


def empty(away: Path, there: Path) -> None:
    there.mkdir()


def older(away: Path, there: Path) -> None:
    """What somebody copied before the last records came."""
    shutil.copytree(away, there)
    newest = max(there.glob("*.log"))
    os.truncate(newest, newest.stat().st_size - 1)


@pytest.mark.parametrize("make", [empty, older])
def test_no_segment_is_begun_in_another_directory(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    directory, log = open_log(tmp_path / "logs")
    for _ in range(4):
        append(log)
    there, away = tmp_path / "logs" / "t-0", tmp_path / "away"
    there.rename(away)
    make(away, there)
    files = sorted(there.glob("*.log"))
    with pytest.raises(KafkaError) as refused:
        append(log)
    assert refused.value.code is ErrorCode.kafka_storage_error
    with pytest.raises(KafkaError):
        log.roll()
    assert sorted(there.glob("*.log")) == files
    shutil.rmtree(there)
    away.rename(there)
    append(log)
    directory.close()
    directory, log = open_log(tmp_path / "logs")
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
    directory.close()


def values(log: PartitionLog) -> list[bytes]:
    """The first bytes of all records."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1)
        found += [record.value[:1] for record in decode_records(data) if record.value is not None]
        offset += 1
    return found


@pytest.mark.parametrize("make", [nothing, empty, older])
def test_nothing_is_taken_back_in_another_directory(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    """The files that were to go would be there again with the log, behind what is appended since."""
    directory, log = open_log(tmp_path / "logs")
    for _ in range(6):
        append(log, b"a")
    there, away = tmp_path / "logs" / "t-0", tmp_path / "away"
    there.rename(away)
    make(away, there)
    with pytest.raises(KafkaError) as refused:
        log.truncate_to(3)
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert (log.log_end_offset, log.is_trusted) == (6, True)
    shutil.rmtree(there, ignore_errors=True)
    away.rename(there)
    assert log.truncate_to(3) == 3
    append(log, b"b")
    directory.close()
    directory, log = open_log(tmp_path / "logs")
    assert values(log) == [b"a", b"a", b"a", b"b"]
    directory.close()


@pytest.mark.parametrize("make", [nothing, empty, older])
def test_no_log_is_begun_anew_in_another_directory(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    """Once the former one is back in its place, all that was appended since would be lost."""
    directory, log = open_log(tmp_path / "logs")
    for _ in range(6):
        append(log, b"a")
    there, away = tmp_path / "logs" / "t-0", tmp_path / "away"
    there.rename(away)
    make(away, there)
    files = sorted(there.glob("*"))
    with pytest.raises(KafkaError) as refused:
        log.truncate_fully_and_start_at(8)
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert (log.log_end_offset, log.is_trusted) == (6, True)
    assert sorted(there.glob("*")) == files
    shutil.rmtree(there, ignore_errors=True)
    away.rename(there)
    assert log.truncate_fully_and_start_at(8) == 8
    append(log, b"b")
    directory.close()
    directory, log = open_log(tmp_path / "logs")
    assert (log.log_start_offset, values(log)) == (8, [b"b"])
    directory.close()


@pytest.mark.parametrize("make", [nothing, empty, older])
def test_it_is_not_closed_properly_in_another_directory(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    """What the next start finds there is not what this process had: the controller is not to rely on that."""
    directory, log = open_log(tmp_path / "logs")
    for _ in range(5):
        append(log)
    there = tmp_path / "logs" / "t-0"
    there.rename(tmp_path / "away")
    make(tmp_path / "away", there)
    with pytest.raises(KafkaError) as refused:
        directory.close()
    assert refused.value.code is ErrorCode.kafka_storage_error
    reopened = LogDirectory.open(str(tmp_path / "logs"), "c", 1, seeded_environment(1, ManualClock()))
    assert not reopened.was_clean
    reopened.abandon()
