"""How far the log in a directory is, as it is found there: what has to be read for that, and which of two is behind."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import SystemFiles
from barnabas.log.config import LogConfig
from barnabas.log.log_progress import NO_LOG, LogProgress, has_log, log_progress
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.scan import HEADER_WALK_BYTES
from barnabas.records.record import encode_batch

CONFIG = LogConfig(retention_ms=-1, message_timestamp_after_max_ms=2**60)


def open_log(directory: Path) -> PartitionLog:
    return PartitionLog.open(str(directory), "t", 0, uuid.UUID(int=1), CONFIG, seeded_environment())


def append(log: PartitionLog, count: int, leader_epoch: int = 0, value: bytes = b"v") -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([(1, None, value, ())]), leader_epoch)


def progress(log: PartitionLog) -> LogProgress:
    return log_progress(SystemFiles(), log.directory)


def test_it_is_the_last_batch_and_what_comes_behind_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert progress(log) == (-1, 0)
    append(log, 3)
    append(log, 2, leader_epoch=4)
    assert progress(log) == (4, 5)
    log.roll()
    assert progress(log) == (4, 5), "the last segment has none yet"
    log.maybe_increment_log_start_offset(5)
    log.delete_old_segments(5)
    assert progress(log) == (-1, 5)
    log.release()


def test_where_there_is_no_log_there_is_no_progress(tmp_path: Path) -> None:
    assert log_progress(SystemFiles(), str(tmp_path)) == NO_LOG
    assert log_progress(SystemFiles(), str(tmp_path / "t-0")) == NO_LOG
    assert not has_log(SystemFiles(), str(tmp_path))
    assert not has_log(SystemFiles(), str(tmp_path / "t-0"))


def test_a_file_of_another_program_is_no_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 2)
    (Path(log.directory) / "rsync.log").write_bytes(b"what was copied")
    assert progress(log) == (0, 2)
    log.release()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_headers_alone_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_indexed: bool) -> None:
    """And those alone that come after the last index entry, where the segment has one."""
    log = open_log(tmp_path)
    append(log, 300, value=bytes(20_000))
    log.close()
    if not is_indexed:
        os.unlink(Path(log.directory) / f"{0:020d}.index")
    files, read = SystemFiles(), list[int]()

    def pread(fd: int, length: int, position: int) -> bytes:
        read.append(length)
        return os.pread(fd, length, position)

    monkeypatch.setattr(files, "pread", pread)
    assert log_progress(files, log.directory) == (0, 300)
    assert max(read) <= HEADER_WALK_BYTES
    assert len(read) <= (5 if is_indexed else 300)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 9), (2, 3)),
        ((2, 3), (2, 4)),
        ((-1, 0), (0, 1)),
        ((0, 2), (-1, 6)),
        ((-1, 6), (0, 8)),
        (NO_LOG, (-1, 0)),
    ],
)
def test_one_is_behind_the_other(one: Any, other: Any) -> None:
    """By its epoch first, as far as both have one."""
    assert LogProgress(*one).is_behind(LogProgress(*other))
    assert not LogProgress(*other).is_behind(LogProgress(*one))
    assert not LogProgress(*one).is_behind(LogProgress(*one))
