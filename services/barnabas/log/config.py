"""The topic settings that the log obeys, under Kafka's names with underscores for dots."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from barnabas.kernel.kafka_values import INT_MAX, LONG_MAX

_MIB = 1024 * 1024
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """Settings of one partition's log; the defaults are those of Kafka 4."""

    segment_bytes: int = 1024 * _MIB
    """Bytes at which a segment is rolled; also the most that one append may hold."""
    segment_ms: int = 7 * _DAY_MS
    """Age in ms, by record timestamps, at which a segment is rolled even if small."""
    segment_jitter_ms: int = 0
    """Most ms taken off `segment_ms` at random, so that partitions do not all roll at once."""
    segment_index_bytes: int = 10 * _MIB
    """Bytes that an index may hold; a full one rolls the segment."""
    index_interval_bytes: int = 4096
    """Bytes of log between two index entries."""
    retention_ms: int = 7 * _DAY_MS
    """Age in ms after which a segment may go; -1 keeps it for ever."""
    retention_bytes: int = -1
    """Bytes that a partition keeps; -1 is no limit."""
    max_message_bytes: int = _MIB + 12
    """Largest record batch in bytes, header included."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """`delete`, `compact`, or both."""
    delete_retention_ms: int = _DAY_MS
    """Ms that a tombstone stays in a compacted log after the first compaction that met it."""
    min_compaction_lag_ms: int = 0
    """Ms for which a record is safe from compaction."""
    max_compaction_lag_ms: int = LONG_MAX
    """Ms after which a record is compacted whatever the dirty ratio."""
    min_cleanable_dirty_ratio: float = 0.5
    """Share of a log that must be new before it is compacted, 0 to 1."""
    message_timestamp_type: str = "CreateTime"
    """`CreateTime` or `LogAppendTime`."""
    message_timestamp_before_max_ms: int = LONG_MAX
    """Most ms that a record's timestamp may lie before the broker's clock."""
    message_timestamp_after_max_ms: int = _HOUR_MS
    """Most ms that a record's timestamp may lie after the broker's clock (one hour since KIP-1030)."""
    flush_messages: int = LONG_MAX
    """Records after which the log is synced to disk."""
    flush_ms: int = LONG_MAX
    """Ms after which the log is synced to disk."""

    def __post_init__(self) -> None:
        # What the log relies on; texts are read, and held to Kafka's narrower bounds, in `metadata.topic_settings`.
        positive = (
            "segment_bytes",
            "segment_ms",
            "segment_index_bytes",
            "flush_messages",
            "max_compaction_lag_ms",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '.')} must be at least 1")
        if self.index_interval_bytes < 0:
            raise ValueError("index.interval.bytes must be at least 0")
        if self.segment_bytes > INT_MAX:
            raise ValueError(f"segment.bytes must be at most {INT_MAX}: positions in a segment are 32 bits")
        if self.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise ValueError("message.timestamp.type must be CreateTime or LogAppendTime")
        if not self.cleanup_policy <= {"delete", "compact"}:
            raise ValueError("cleanup.policy must be a list of delete and compact")

    # What follows from the settings is worked out once: every append asks for it.

    @cached_property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age in ms at which a segment is rolled: only rolled ones are compacted, so max.compaction.lag.ms counts."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy
