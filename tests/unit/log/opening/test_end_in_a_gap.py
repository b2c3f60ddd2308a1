"""A log is cut back to where its records were compacted: it ends there at the next start, too."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery_harness import CONFIG, TOPIC_ID

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.log.small_files import SyncError
from barnabas.records.record import encode_batch


def open_directory(path: Path) -> LogDirectory:
    directory = LogDirectory.open(str(path), "c", 1, seeded_environment(1, ManualClock(1000)))
    directory.partitions_on_disk()
    return directory


def begin(directory: LogDirectory) -> PartitionLog:
    return directory.open_partition("t", 0, TOPIC_ID, CONFIG)


def copied(base_offset: int, count: int, epoch: int) -> bytes:
    rows = [(base_offset + number, None, b"v", ()) for number in range(count)]
    return encode_batch(rows, base_offset=base_offset, partition_leader_epoch=epoch)


def with_gaps(directory: LogDirectory) -> PartitionLog:
    """Its leader's log has nothing from 6 to 19, and from 23 to 24."""
    log = begin(directory)
    for batch in (copied(0, 2, 1), copied(2, 2, 1), copied(4, 2, 1), copied(20, 3, 2), copied(25, 3, 2)):
        assert log.append_as_follower(batch)
    log.flush()
    directory.write_checkpoints({("t", 0): 20})
    return log


def stop(directory: LogDirectory, log: PartitionLog) -> None:
    directory.close({("t", 0): 20})


def crash(directory: LogDirectory, log: PartitionLog) -> None:
    log.flush()
    directory.write_checkpoints({("t", 0): 20})
    directory.abandon()


def die(directory: LogDirectory, log: PartitionLog) -> None:
    directory.abandon()


@pytest.mark.parametrize("end", [stop, crash, die])
@pytest.mark.parametrize("offset", [10, 20, 24, 25])
def test_it_ends_there(
    tmp_path: Path, offset: int, end: Callable[[LogDirectory, PartitionLog], None]
) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)
    assert log.truncate_to(offset) == offset
    end(directory, log)
    directory = open_directory(tmp_path)
    assert directory.was_clean == (end is stop)
    log = begin(directory)
    assert log.log_end_offset == offset
    assert not log.recovery_report.lost_below_recovery_point
    assert not log.recovery_report.gaps
    assert log.append_as_follower(copied(offset, 1, 3))
    assert log.epochs.epoch_for_offset(offset) == 3


def fill_disk(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(log.truncator._roller, "roll_at", full)


@pytest.mark.parametrize("end", [stop, crash, die])
def test_where_the_checkpoint_cannot_be_written_it_ends_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[LogDirectory, PartitionLog], None]
) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)
    monkeypatch.setattr(log.truncator, "write_compacted", refuse)
    assert log.truncate_to(20) == log.log_end_offset == 20
    assert log.is_trusted
    end(directory, log)
    log = begin(open_directory(tmp_path))
    assert log.log_end_offset == 20
    assert bool(log.recovery_report.gaps) == (end is die), "the next checkpoint says what it is"


def test_a_checkpoint_that_could_not_be_written_is_by_the_next_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)
    with monkeypatch.context() as patch:
        patch.setattr(log.truncator, "write_compacted", refuse)
        log.truncate_to(24)
    log.truncate_to(20)
    die(directory, log)
    log = begin(open_directory(tmp_path))
    assert not log.recovery_report.gaps


def refuse() -> None:
    raise KafkaError(ErrorCode.kafka_storage_error, "no room")


def test_without_room_for_that_it_is_cut_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)
    fill_disk(log, monkeypatch)
    assert log.truncate_to(20) == log.log_end_offset == 20
    assert log.is_trusted
    assert log.append_as_follower(copied(20, 1, 3))
    monkeypatch.undo()
    directory.close()
    log = begin(open_directory(tmp_path))
    assert log.segment_base_offsets == (0,), "a record says where it ends"
    assert log.log_end_offset == 21


def test_that_there_was_no_room_is_reported_as_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)
    fill_disk(log, monkeypatch)
    log.truncate_to(20)
    monkeypatch.undo()
    stop(directory, log)
    log = begin(open_directory(tmp_path))
    assert not log.recovery_report.lost_below_recovery_point
    assert not log.recovery_report.gaps


def test_what_may_not_be_on_the_disk_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory(tmp_path)
    log = with_gaps(directory)

    def fail(*_: Any) -> None:
        raise SyncError(errno.EIO, "a sync failed")

    monkeypatch.setattr(log.truncator._roller, "roll_at", fail)
    with pytest.raises(KafkaError) as refused:
        log.truncate_to(20)
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert not log.is_trusted


def test_what_its_own_cleaner_has_done_is_not_forgotten(tmp_path: Path) -> None:
    log = with_gaps(open_directory(tmp_path))
    log.first_dirty_offset = 4
    log.truncate_to(20)
    assert log.first_dirty_offset == 4
