"""The active segment stays open, however many others are read: its indexes are in memory first, then on the disk."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import pytest
from recovery_harness import open_log

from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.segment import Segment
from barnabas.log.segments.segment_cache import SegmentCache
from barnabas.records.record import encode_batch

CONFIG: Final = LogConfig(
    segment_bytes=6_000, index_interval_bytes=300, retention_ms=-1, message_timestamp_after_max_ms=2**60
)


def append(log: PartitionLog, count: int, size: int) -> None:
    for _ in range(count):
        log.append_as_leader(encode_batch([(1_000, None, b"v" * size, ())]), 1)


def found(log: PartitionLog) -> list[int]:
    """The offsets whose batch, of one record each, is found."""
    segments = log.segments
    return [
        offset
        for offset in range(log.log_end_offset)
        for segment in [next(each for each in reversed(segments) if each.base_offset <= offset)]
        if (batch := segment.find(offset)) is not None and batch.header.base_offset == offset
    ]


@pytest.mark.parametrize("count", [60, 20], ids=["a finished one becomes it", "it was it before"])
def test_it_finds_all_after_a_truncation_and_many_reads(tmp_path: Path, count: int) -> None:
    """Its index on the disk is still that of before: read again, it would lead amid batches."""
    log = open_log(tmp_path, config=CONFIG)
    append(log, count, 120)
    end = log.log_end_offset
    log.flush()
    log.close()
    cache = SegmentCache(1)
    log = open_log(tmp_path, config=CONFIG, recovery_point=end, clean=True, cache=cache)
    assert log.truncate_to(8) == 8
    append(log, 14, 230)  # of another size than before
    end = log.log_end_offset
    for other in (tmp_path / "others-1", tmp_path / "others-2"):  # of the same directory, as a node has them
        append(open_log(other, config=CONFIG, cache=cache), 60, 120)
    assert log.segments[-1].is_open
    assert found(log) == list(range(end))
    log.flush()
    log.close()
    again = open_log(tmp_path, config=CONFIG, recovery_point=end, clean=True)
    assert found(again) == list(range(end))


def test_what_a_check_found_stays_until_it_is_written(tmp_path: Path) -> None:
    """The files of the indexes are those of before the crash: whoever needs room leaves the segment open."""
    cache = SegmentCache(1)
    log = open_log(tmp_path, config=CONFIG, cache=cache)
    append(log, 20, 120)
    (segment,) = log.segments
    segment.unpin()
    segment.recover(lambda *_: None, is_active=True)
    opened = segment.open()
    append(open_log(tmp_path / "other", config=CONFIG, cache=cache), 60, 120)
    for other in open_log(tmp_path / "others", config=CONFIG, cache=cache).segments:
        other.open()
    assert segment.open() is opened
    segment.finish()
    others = open_log(tmp_path / "other", config=CONFIG, cache=cache)
    for other in others.segments[:-1]:
        other.open()
    assert not segment.is_open


def test_what_was_cut_stays_until_its_indexes_are_written(tmp_path: Path) -> None:
    """Their files have as many entries as the indexes, and others behind them that may fit what was appended since."""
    cache = SegmentCache(1)
    log = open_log(tmp_path, config=CONFIG, cache=cache)
    append(log, 20, 120)
    (segment,) = log.segments
    segment.finish()
    written = Path(segment.path(OffsetIndex.suffix)).read_bytes()
    log.truncate_to(11)
    append(log, 1, 3_000)
    opened = segment.open()
    assert written.startswith(opened.offset_index.entries)
    assert len(written) > len(opened.offset_index.entries)
    segment.unpin()
    for other in open_log(tmp_path / "others", config=CONFIG, cache=cache).segments:
        other.unpin()
    assert segment.open() is opened
    assert segment.find(11) is not None


class SlowToGo:
    """A segment that takes its time to be released."""

    directory = ""

    def __init__(self) -> None:
        self.goes, self.may_go, self.is_gone = threading.Event(), threading.Event(), False

    def evict(self) -> None:
        self.goes.set()
        assert self.may_go.wait(10)
        self.is_gone = True

    def release(self) -> None:
        raise AssertionError


def test_nobody_is_about_to_close_what_was_forgotten() -> None:
    """Who makes it the active segment opens it next, and nobody may release that."""
    cache = SegmentCache(1)
    old = SlowToGo()
    cache.touch(old)
    touching = threading.Thread(target=cache.touch, args=(SlowToGo(),))
    touching.start()
    assert old.goes.wait(10)
    was_gone: list[bool] = []

    def forget() -> None:
        cache.forget(old)
        was_gone.append(old.is_gone)

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    forgetting.join(0.1)
    old.may_go.set()
    touching.join(10)
    forgetting.join(10)
    assert was_gone == [True]


def test_a_segment_that_was_dropped_is_not_read_by_its_name(tmp_path: Path) -> None:
    """Another one may have it by now, whose indexes would be held against the size of the former."""
    log = open_log(tmp_path, config=CONFIG)
    append(log, 60, 120)
    dropped: Segment = log.segments[1]
    log.truncate_to(dropped.base_offset - 1)
    append(log, 60, 120)
    assert dropped.base_offset in log.segment_base_offsets
    with pytest.raises(FileNotFoundError):
        dropped.open()
