"""Which part of a log compaction may look at, and whether it is worth its while.

    clean: compacted before | dirty: new since | not cleanable: too young, undecided, or the active segment

Offsets up to the first dirty one stand in `cleaner-offset-checkpoint`.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.errors import storage_errors
from barnabas.log.partition_log import PartitionLog


class LogToClean(NamedTuple):
    """A log and its sections: `clean_bytes` before `first_dirty_offset`, `cleanable_bytes` from there up to
    `first_uncleanable_offset`, where a segment begins.
    """

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether a record has waited for longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """Share of the dirty section, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.cleanable_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def measure(log: PartitionLog, high_watermark: int, now_ms: int) -> LogToClean:
    """The sections of a compacted log. May open segments: for a thread. Raises KAFKA_STORAGE_ERROR."""
    with storage_errors(log.directory):
        return _measure(log, high_watermark, now_ms)


def _measure(log: PartitionLog, high_watermark: int, now_ms: int) -> LogToClean:
    *finished, active = log.segments
    first_dirty = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    after = [segment.base_offset for segment in (*finished, active)][1:]
    dirty = [segment for segment, end in zip(finished, after, strict=True) if end > first_dirty]
    bound = log.last_stable_offset(high_watermark)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.base_offset for each in dirty if each.largest_timestamp() > now_ms - lag_ms)
        bound = min(bound, next(young, bound))
    cleanable_ends = [end for end in after if end <= bound]
    first_uncleanable = max([first_dirty, *cleanable_ends])
    cleanable = finished[: len(cleanable_ends)]
    clean_count = len(finished) - len(dirty)
    oldest = min((first for each in dirty if (first := each.first_timestamp()) > 0), default=now_ms)
    return LogToClean(
        log,
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in cleanable[:clean_count]),
        sum(segment.size for segment in cleanable[clean_count:]),
        now_ms - oldest > log.config.max_compaction_lag_ms,
    )
