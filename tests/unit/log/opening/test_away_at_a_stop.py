"""A log that was away when its directory was closed properly: the mark speaks of the logs that were there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recovery_harness import CONFIG, TOPIC_ID, boundaries, fill, offsets, segment_path

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.log import flusher, partition_log
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog

KEY = ("t", 0)


def open_directory(path: Path) -> LogDirectory:
    directory = LogDirectory.open(str(path), "c", 1, seeded_environment(1, ManualClock(1000)))
    directory.partitions_on_disk()
    return directory


def begin(directory: LogDirectory) -> PartitionLog:
    return directory.open_partition(*KEY, TOPIC_ID, CONFIG)


def crashed(path: Path, synced: int) -> PartitionLog:
    """The power went when 12 records stood in three segments, of which so many were synced."""
    directory = open_directory(path)
    log = begin(directory)
    fill(log, synced, producer_id=5)
    log.flush()
    directory.write_checkpoints()
    fill(log, 12 - synced, producer_id=5)
    assert log.segment_base_offsets == (0, 5, 10)
    directory.abandon()
    return log


def harm(log: PartitionLog, record: int) -> None:
    """A byte of it is wrong."""
    segment = segment_path(log, record // 5)
    content = bytearray(segment.read_bytes())
    content[boundaries(bytes(content))[record % 5] + 70] ^= 1
    segment.write_bytes(content)


def stop_without_it(path: Path, *, is_back_before: bool = False) -> None:
    """The node starts after the crash while the log is away, and is stopped; so again, if it is to be back before the
    second stop.
    """
    place, away = path / "t-0", path.with_name("away")
    place.rename(away)
    directory = open_directory(path)
    assert not directory.was_clean
    directory.open_partition("u", 0, TOPIC_ID, CONFIG)
    directory.close()
    if is_back_before:
        directory = open_directory(path)
        away.rename(place)
        directory.close()
    else:
        away.rename(place)


def begin_marked(path: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = open_directory(path)
    assert directory.was_clean
    return directory, begin(directory)


@pytest.mark.parametrize("is_back_before", [False, True])
@pytest.mark.parametrize(("synced", "bad"), [(0, 1), (3, 4), (3, 7), (3, 11), (6, 7), (11, 11)])
def test_what_nobody_checked_is_checked_whatever_the_mark_says(
    tmp_path: Path, synced: int, bad: int, is_back_before: bool
) -> None:
    """Also where no checkpoint names it, and where a node ran beside it that did not open it."""
    path = tmp_path / "log"
    harm(crashed(path, synced), bad)
    stop_without_it(path, is_back_before=is_back_before)
    directory, log = begin_marked(path)
    assert offsets(log) == list(range(bad))
    assert log.log_end_offset == bad
    assert log.producer_state.producers[5].last_sequence == bad - 1
    assert log.recovery_point <= synced, "nobody has asked the disk for the rest"
    directory.close()
    assert begin_marked(path)[1].recovery_report.segments_checked == 0


@pytest.mark.parametrize(("synced", "bad"), [(0, 1), (3, 4), (3, 7), (6, 7)])
def test_where_the_last_write_is_torn_more_than_its_segment_is_checked(
    tmp_path: Path, synced: int, bad: int
) -> None:
    path = tmp_path / "log"
    log = crashed(path, synced)
    harm(log, bad)
    last = segment_path(log, 2)
    last.write_bytes(last.read_bytes()[:-20])
    stop_without_it(path)
    assert offsets(begin_marked(path)[1]) == list(range(bad))


def test_its_name_is_synced_before_its_records_count_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of others does not say that the disk has the file which tells whose it is."""
    path = tmp_path / "log"
    crashed(path, 3)
    stop_without_it(path)
    _, log = begin_marked(path)
    synced: list[str] = []
    monkeypatch.setattr(flusher, "sync_path", lambda _, name: synced.append(name))
    log.flush()
    assert str(path / "t-0" / "partition.metadata") in synced


def test_what_took_long_to_check_is_written_down_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    crashed(path, 3)
    stop_without_it(path)
    monkeypatch.setattr(partition_log, "SYNC_RECOVERED_BYTES", 1)
    directory, log = begin_marked(path)
    assert log.recovery_report.segments_checked == 3
    directory.abandon()
    assert begin(open_directory(path)).recovery_report.segments_checked == 1


def add(log: PartitionLog) -> None:
    fill(log, 12, producer_id=5)


def cut(log: PartitionLog) -> None:
    add(log)
    log.flush()
    log.truncate_to(7)


def expire(log: PartitionLog) -> None:
    add(log)
    log.roll()
    log.maybe_increment_log_start_offset(12)
    assert log.delete_old_segments(12) == 3


def begin_later(log: PartitionLog) -> None:
    add(log)
    log.truncate_fully_and_start_at(100)


def leave_a_gap(log: PartitionLog) -> None:
    add(log)
    log.skip_to(40)


def lose_indexes(log: PartitionLog) -> None:
    """All of them are built anew."""
    add(log)
    log.flush()
    for index in Path(log.directory).glob("*.index"):
        index.unlink()


@pytest.mark.parametrize(
    "use", [lambda _: None, add, cut, expire, begin_later, leave_a_gap, lose_indexes, PartitionLog.roll]
)
def test_of_what_was_closed_properly_only_the_end_is_looked_at(
    tmp_path: Path, use: Callable[[PartitionLog], None]
) -> None:
    directory = open_directory(tmp_path)
    use(begin(directory))
    directory.close()
    for _ in range(3):
        directory, log = begin_marked(tmp_path)
        assert log.recovery_report.segments_checked == 0
        assert log.recovery_point == log.log_end_offset
        directory.close()
