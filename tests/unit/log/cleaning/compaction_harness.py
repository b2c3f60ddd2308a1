"""A compacted log, cleanings of it, and what it then holds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import SystemFiles
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import measure
from barnabas.log.cleaning.cleaned_segment import CleanedCounts
from barnabas.log.cleaning.offset_map import ENTRY_BYTES
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import BatchHeader, iterate_headers
from barnabas.records.record import Record, decode_records, encode_batch

FILES = SystemFiles()
"""Of which a test lets calls fail."""
RETENTION_MS = 1_000
Config = dict[str, object]


def make_config(**changed: object) -> LogConfig:
    values: Config = {
        "segment_bytes": 600,
        "index_interval_bytes": 100,
        "cleanup_policy": frozenset({"compact"}),
        "delete_retention_ms": RETENTION_MS,
        "message_timestamp_after_max_ms": 2**60,
        "min_cleanable_dirty_ratio": 0.0,
    }
    return LogConfig(**{**values, **changed})  # type: ignore[arg-type]


def open_log(
    directory: str, clock: ManualClock, *, clean: bool = False, recovery_point: int = 0, **changed: object
) -> PartitionLog:
    config = make_config(**changed)
    return PartitionLog.open(
        directory,
        "t",
        0,
        uuid.UUID(int=9),
        config,
        seeded_environment(1, clock, files=FILES),
        clean_shutdown=clean,
        recovery_point=recovery_point,
    )


def compact(log: PartitionLog, clock: ManualClock, *, keys_max: int = 1_000_000) -> CleanedCounts:
    to_clean = measure(log, log.log_end_offset, clock.now_ms())
    if to_clean.cleanable_bytes == 0:
        return CleanedCounts()
    return cleaner.clean(to_clean, clock.now_ms(), lambda _: None, buffer_bytes=keys_max * ENTRY_BYTES)


def read_batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 700)
        if not data:
            return
        for position, header in iterate_headers(data):
            assert header.last_offset >= offset
            offset = header.next_offset
            yield header, data[position : position + header.size_in_bytes]


def read_all(log: PartitionLog) -> list[Record]:
    return [
        record
        for header, batch in read_batches(log)
        if not header.is_control
        for record in decode_records(batch)
    ]


def put(
    log: PartitionLog, clock: ManualClock, *pairs: tuple[bytes, bytes | None], **options: Any
) -> list[Record]:
    batch = encode_batch([(clock.now_ms(), key, value, ()) for key, value in pairs], **options)
    first = log.append_as_leader(batch, 0).base_offset
    return [Record(first + at, clock.now_ms(), key, value, ()) for at, (key, value) in enumerate(pairs)]
