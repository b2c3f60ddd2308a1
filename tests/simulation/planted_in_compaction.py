"""Faults to be planted into compaction: see `planted_faults`, which has them all."""

from __future__ import annotations

from typing import Any

from barnabas.log.cleaning.batch_filter import BatchFilter
from barnabas.log.partition_log import PartitionLog
from barnabas.records.filtered import KeyedRecord


def tombstones_go_at_once(stays: Any) -> Any:
    """What says that a key is gone has nothing to say once the key is gone, one might think."""

    def instead(self: BatchFilter, record: KeyedRecord, _tombstones_go: bool) -> bool:
        return bool(stays(self, record, True))

    return instead


def not_even_the_last(stays: Any) -> Any:
    """Whatever the map knows of goes."""

    def instead(self: BatchFilter, record: KeyedRecord, tombstones_go: bool) -> bool:
        return bool(stays(self, record, tombstones_go)) and record.offset != self._offsets.get(
            record.key or b""
        )

    return instead


def all_that_is_written(measure: Any) -> Any:
    """Whether it is committed or not."""

    def instead(opened: PartitionLog, _high_watermark: int, now_ms: int) -> Any:
        return measure(opened, opened.log_end_offset, now_ms)

    return instead
