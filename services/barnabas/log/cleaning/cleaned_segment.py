"""One compacted segment made of one or more old ones, and which old ones go into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import INT_MAX
from barnabas.log.cleaning.batch_filter import BatchFilter, replaced_header
from barnabas.log.cleaning.segment_swap import remove_cleaned
from barnabas.log.config import LogConfig
from barnabas.log.segments.scan import CheckedScan
from barnabas.log.segments.segment import LOG_SUFFIX, AppendedBatch, Segment
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.small_files import sync_directory

WRITE_BYTES = 512 * 1024
"""Bytes of batches that are collected before they are written."""

Pace = Callable[[int], None]
"""Called with the bytes of every batch read and of every write; may wait, or raise to end the cleaning."""


class CleanedCounts(NamedTuple):
    """Bytes and records of the segments read and of those written."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0

    def plus(self, other: CleanedCounts) -> CleanedCounts:
        return CleanedCounts(*(mine + its for mine, its in zip(self, other, strict=True)))


def group_segments(segments: Sequence[Segment], config: LogConfig, end_offset: int) -> list[list[Segment]]:
    """Neighbours that fit one segment together, by size, by index size and by the 32 bits of relative offsets.

    `end_offset` is the offset after the last of `segments`. May open segments.
    """
    groups: list[list[Segment]] = []
    sizes = (0, 0, 0)
    for number, segment in enumerate(segments):
        opened = segment.open()
        added = (segment.size, len(opened.offset_index.entries), len(opened.time_index.entries))
        after = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        together = tuple(size + more for size, more in zip(sizes, added, strict=True))
        index_max = config.segment_index_bytes
        fits = together[0] <= config.segment_bytes and max(together[1:]) <= index_max
        if groups and fits and after - 1 - groups[-1][0].base_offset <= INT_MAX:
            groups[-1].append(segment)
            sizes = (together[0], together[1], together[2])
        else:
            groups.append([segment])
            sizes = added
    return groups


def write_cleaned(
    factory: SegmentFactory, group: Sequence[Segment], batches: BatchFilter, pace: Pace
) -> CleanedCounts:
    """Write the `.cleaned` files of the group's compacted segment; durable when this returns.

    Raises KafkaError(CORRUPT_MESSAGE) for a batch that is not right, OSError, and whatever `pace` raises; the files
    are gone then.
    """
    base_offset = group[0].base_offset
    remove_cleaned(factory.files, factory.directory, base_offset)
    try:
        cleaned = factory.create_cleaned(base_offset)
        counts = CleanedCounts()
        for segment in group:
            counts = counts.plus(_clean_into(cleaned, segment, batches, pace))
        for aborted in batches.transactions.take_kept():
            cleaned.transaction_index.append(aborted)
        cleaned.finish()
        # A segment without timestamps is as old as its file says.
        modified = factory.files.stat(group[-1].path(LOG_SUFFIX)).st_mtime_ns
        factory.files.utime(cleaned.path(LOG_SUFFIX), modified)
        cleaned.sync()
        sync_directory(factory.files, factory.directory)
        cleaned.release()
        return counts
    except BaseException:
        remove_cleaned(factory.files, factory.directory, base_offset)
        raise


def checked_scan(segment: Segment) -> CheckedScan:
    """Every batch of a finished segment; `raise_if_cut` says afterwards whether it was all of them."""
    return CheckedScan(segment.open().file, segment.base_offset, segment.size)


def raise_if_cut(segment: Segment, scan: CheckedScan) -> None:
    """Raises KafkaError(CORRUPT_MESSAGE) when the scan stopped before the segment's end."""
    if scan.valid_bytes != scan.size:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"{segment.path(LOG_SUFFIX)} at position {scan.valid_bytes}: {scan.stopped_by}",
        )


def _clean_into(cleaned: Segment, segment: Segment, batches: BatchFilter, pace: Pace) -> CleanedCounts:
    parts: list[bytes] = []
    appended: list[AppendedBatch] = []
    waiting = read = written = records_read = records_written = 0
    scan = checked_scan(segment)
    for scanned in scan:
        header, batch = scanned.header, scan.batch(scanned)
        pace(len(batch))
        read += len(batch)
        records_read += header.record_count
        kept = batches.apply(header, batch)
        if kept is None:
            continue
        header = replaced_header(header, batch, kept)
        parts.append(kept)
        appended.append(
            AppendedBatch(header.base_offset, header.last_offset, header.max_timestamp, len(kept))
        )
        waiting += len(kept)
        records_written += header.record_count
        if waiting >= WRITE_BYTES or len(parts) >= _PARTS_MAX:
            pace(waiting)
            cleaned.append(parts, appended, waiting)
            written += waiting
            parts, appended, waiting = [], [], 0
    raise_if_cut(segment, scan)
    if parts:
        cleaned.append(parts, appended, waiting)
    return CleanedCounts(read, written + waiting, records_read, records_written)


_PARTS_MAX = 512
"""Batches of one write, well below the system's limit for one call."""
