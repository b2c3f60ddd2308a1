"""From a timestamp to a record, exact to the record: time index, offset index, headers, then one batch decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.log.segments.scan import ScannedBatch, scan_headers
from barnabas.log.segments.segment import Segment
from barnabas.records.record import decode_offsets_and_timestamps


class TimestampedOffset(NamedTuple):
    """A record's offset, its timestamp in ms, and the leader epoch that wrote it (-1 if unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    """The first record at or after `log_start_offset` whose timestamp is at least `timestamp`; None without one.

    Raises KafkaError when the batch that holds it cannot be decoded.
    """
    for segment in segments:
        if segment.size == 0 or segment.largest_timestamp() < timestamp:
            continue
        opened = segment.open()
        known = max(opened.time_index.offset_for(timestamp), log_start_offset)
        start = opened.offset_index.position_for(known)
        for scanned in scan_headers(opened.file, start, segment.size):
            header = scanned.header
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            for offset, found in _records(segment, scanned):
                if found >= timestamp and offset >= log_start_offset:
                    return TimestampedOffset(offset, found, header.partition_leader_epoch)
    return None


def max_timestamp(segments: Sequence[Segment]) -> TimestampedOffset | None:
    """The first record with the greatest timestamp; None when no record has one."""
    candidates = [segment for segment in segments if segment.size and segment.maximum()[0] >= 0]
    if not candidates:
        return None
    segment = max(candidates, key=lambda candidate: candidate.maximum()[0])
    timestamp, last_offset = segment.maximum()
    scanned = segment.find(last_offset)
    if scanned is None:
        return None
    for offset, found in _records(segment, scanned):
        if found == timestamp:
            return TimestampedOffset(offset, found, scanned.header.partition_leader_epoch)
    return _max_timestamp_of_headers(segments)


def _max_timestamp_of_headers(segments: Sequence[Segment]) -> TimestampedOffset | None:
    """As `max_timestamp`, where compaction has emptied the batch with the greatest: by every header."""
    best: tuple[int, Segment, ScannedBatch] | None = None
    for segment in segments:
        for scanned in scan_headers(segment.open().file, 0, segment.size):
            timestamp = scanned.header.max_timestamp
            if scanned.header.record_count and timestamp >= 0 and (best is None or timestamp > best[0]):
                best = timestamp, segment, scanned
    if best is None:
        return None
    timestamp, segment, scanned = best
    for offset, found in _records(segment, scanned):
        if found == timestamp:
            return TimestampedOffset(offset, found, scanned.header.partition_leader_epoch)
    return None


def _records(segment: Segment, scanned: ScannedBatch) -> Iterator[tuple[int, int]]:
    batch = segment.open().file.read(scanned.position, scanned.header.size_in_bytes)
    return decode_offsets_and_timestamps(batch)
