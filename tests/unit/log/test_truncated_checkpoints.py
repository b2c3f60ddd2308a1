"""What checkpoints say of a log that loses its end: on the disk nothing ever vouches for what is written anew."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.checkpoint_file import read_offsets
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.record import encode_batch

FILES = SystemFiles()
TOPIC_ID = uuid.UUID(int=11)
KEY = ("t", 0)


def open_directory(path: Path) -> LogDirectory:
    return LogDirectory.open(str(path), "c", 1, seeded_environment())


def open_log(directory: LogDirectory) -> PartitionLog:
    return directory.open_partition(*KEY, TOPIC_ID, LogConfig())


def append(log: PartitionLog, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([(1, None, b"v", ())]), epoch)


def on_disk(path: Path) -> tuple[int, int, int]:
    """(recovery point, start, high watermark) as the checkpoints have them."""
    names = ("recovery-point-offset", "log-start-offset", "replication-offset")
    offsets = [read_offsets(FILES, str(path / f"{name}-checkpoint")).get(KEY, 0) for name in names]
    return offsets[0], offsets[1], offsets[2]


def test_they_come_down_before_the_log_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = open_directory(tmp_path)
    log = open_log(directory)
    append(log, 10)
    log.maybe_increment_log_start_offset(8)
    log.flush()
    directory.write_checkpoints({KEY: 9})
    assert on_disk(tmp_path) == (9, 8, 9)
    seen: list[tuple[int, int, int]] = []
    cut = FILES.ftruncate

    def ftruncate(fd: int, size: int) -> None:
        seen.append(on_disk(tmp_path))
        cut(fd, size)

    monkeypatch.setattr(SystemFiles, "ftruncate", staticmethod(ftruncate))
    assert log.truncate_to(6) == 6
    assert seen
    assert set(seen) == {(0, 6, 6)}
    assert log.log_start_offset == 6
    append(log, 5, epoch=1)
    directory.abandon()
    again = open_log(open_directory(tmp_path))
    assert again.recovery_report.segments_checked == 1
    assert (again.log_start_offset, again.log_end_offset) == (6, 11)


def test_where_none_vouches_for_what_goes_none_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    log = open_log(directory)
    append(log, 10)
    directory.write_checkpoints({KEY: 5})
    monkeypatch.setattr(directory, "write_checkpoints", lambda *_: pytest.fail("nothing has changed"))
    assert log.truncate_to(5) == 5


@pytest.mark.parametrize("fully", [False, True])
def test_a_disk_that_does_not_take_them_keeps_the_log_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fully: bool
) -> None:
    directory = open_directory(tmp_path)
    log = open_log(directory)
    append(log, 10)
    log.flush()
    directory.write_checkpoints({KEY: 10})
    truncate = log.truncate_fully_and_start_at if fully else log.truncate_to

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SystemFiles, "rename", staticmethod(full))
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                truncate(3)
            assert caught.value.code is ErrorCode.kafka_storage_error
    assert log.is_trusted
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (0, 10, 0)
    assert on_disk(tmp_path) == (9, 0, 10)
    append(log, 1)
    assert truncate(3) == 3
    assert on_disk(tmp_path)[0] == 0
    assert on_disk(tmp_path)[2] == 3


def test_an_epoch_that_has_written_nothing_is_not_the_last(tmp_path: Path) -> None:
    log = open_log(open_directory(tmp_path))
    assert log.last_epoch == -1
    append(log, 2, epoch=3)
    log.assign_epoch_start(5)
    assert (log.last_epoch, log.latest().leader_epoch) == (3, 5)
    log.drop_unwritten_epochs()
    assert log.latest().leader_epoch == 3
    log.maybe_increment_log_start_offset(2)
    assert log.last_epoch == -1


def test_a_follower_takes_no_batch_of_an_epoch_after_the_one_that_it_asked_under(tmp_path: Path) -> None:
    """KAFKA-18723: a slow answer may hold what a later leader wrote."""
    log = open_log(open_directory(tmp_path))
    records = b"".join(
        encode_batch([(1, None, b"v", ())], base_offset=offset, partition_leader_epoch=epoch)
        for offset, epoch in enumerate((3, 4, 5, 4))
    )
    info = log.append_as_follower(records, leader_epoch=4)
    assert info is not None
    assert (info.base_offset, info.last_offset, log.log_end_offset) == (0, 1, 2)
    assert log.append_as_follower(records[-2 * len(records) // 4 :], leader_epoch=4) is None
