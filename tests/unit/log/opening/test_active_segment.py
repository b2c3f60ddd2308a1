"""The active segment stays open, however many others are read: its indexes are in memory first, then on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from recovery_harness import open_log

from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
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
