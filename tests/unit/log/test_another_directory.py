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
from barnabas.records.record import encode_batch

TOPIC_ID = uuid.UUID(int=7)


def open_log(path: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(str(path), "c", 1, seeded_environment(1, ManualClock()))
    config = LogConfig(segment_bytes=600, message_timestamp_after_max_ms=2**60)
    return directory, directory.open_partition("t", 0, TOPIC_ID, config)


def append(log: PartitionLog) -> None:
    log.append_as_leader(encode_batch([(0, None, bytes(200), ())]), 1)


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
