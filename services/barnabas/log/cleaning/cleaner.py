"""Log compaction: of each key the last record stays (Kafka documentation, section "Log Compaction").

One cleaning maps the keys of the dirty section to their last offsets, as many as the map holds, then writes every
segment up to there anew without the records that are overwritten. Offsets never change. The active segment and
what is not decided yet are not touched; appends and reads go on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.cleaning.batch_filter import BatchFilter
from barnabas.log.cleaning.cleanable import LogToClean
from barnabas.log.cleaning.cleaned_segment import (
    CleanedCounts,
    Pace,
    checked_scan,
    group_segments,
    raise_if_cut,
    write_cleaned,
)
from barnabas.log.cleaning.cleaned_transactions import CleanedTransactions
from barnabas.log.cleaning.offset_map import DEDUPE_BUFFER_BYTES, OffsetMap
from barnabas.log.cleaning.segment_swap import remove_cleaned
from barnabas.log.errors import storage_errors
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment import Segment
from barnabas.records.batch import BatchHeader
from barnabas.records.filtered import read_keyed_records

logger = get_logger("log.cleaning")


class CleaningAbortedError(Exception):
    """The cleaning ended early, with the log whole: the node stops, or retention, a truncation or a deletion came
    between. What was swapped in by then stays.
    """


def clean(
    to_clean: LogToClean, now_ms: int, pace: Pace, *, buffer_bytes: int = DEDUPE_BUFFER_BYTES
) -> CleanedCounts:
    """Compact a log and move its `first_dirty_offset`; the caller writes the checkpoint. For a thread.

    Raises CleaningAbortedError, and KafkaError when the disk refuses or a batch cannot be read.
    """
    log = to_clean.log
    view, segments = log.replacement.begin()
    bound = to_clean.first_uncleanable_offset
    # What is still to be read, in order; shorter with every group that is swapped in.
    waiting = [segment for segment in segments if segment.base_offset < bound]
    del segments
    try:
        # A record is dropped in favour of a later one, which must outlive a crash as the former would have done.
        log.flush_finished()
        with storage_errors(log.directory):
            offsets = build_offset_map(log, waiting, to_clean.first_dirty_offset, bound, pace, buffer_bytes)
            end_offset = offsets.latest_offset + 1
            after = next((each.base_offset for each in waiting if each.base_offset >= end_offset), bound)
            del waiting[sum(segment.base_offset < end_offset for segment in waiting) :]
            batches = BatchFilter(
                offsets,
                CleanedTransactions(log.aborted_transactions(0, after)),
                view.last_batches,
                end_offset=bound,
                now_ms=now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
            )
            counts = CleanedCounts()
            groups = deque(group_segments(waiting, log.config, after))
            while groups:
                group = groups.popleft()
                log.check_place()  # a start would take a part of a segment for what is left of a log
                counts = counts.plus(write_cleaned(view.factory, group, batches, pace))
                if not log.replacement.replace(view, group):
                    remove_cleaned(view.factory.files, log.directory, group[0].base_offset)
                    raise CleaningAbortedError(f"{log.directory}: its segments have changed")
                del waiting[: len(group)]
    except KafkaError as error:
        if waiting and log.is_trusted and not log.replacement.still_holds(view, waiting):
            raise CleaningAbortedError(f"{log.directory}: its segments have changed") from error
        raise
    if batches.records_without_key:
        logger.warning(
            "compaction removed records without a key", log=log.directory, records=batches.records_without_key
        )
    log.replacement.finish(view, end_offset)
    return counts


def build_offset_map(
    log: PartitionLog,
    segments: Sequence[Segment],
    first_dirty_offset: int,
    bound: int,
    pace: Pace,
    buffer_bytes: int,
) -> OffsetMap:
    """The last offset of every key in [first_dirty_offset, bound), or in as much of it as the map can hold.

    Records of aborted transactions do not count. Raises KafkaError, OSError, and whatever `pace` raises.
    """
    offsets = OffsetMap(buffer_bytes)
    offsets.latest_offset = first_dirty_offset - 1
    transactions = CleanedTransactions(log.aborted_transactions(first_dirty_offset, bound))
    for number, segment in enumerate(segments):
        after = segments[number + 1].base_offset if number + 1 < len(segments) else bound
        if after <= first_dirty_offset:
            continue
        scan = checked_scan(segment)
        for scanned in scan:
            header = scanned.header
            if header.last_offset < first_dirty_offset:
                continue
            if offsets.is_full:
                return offsets
            pace(header.size_in_bytes)
            _add(offsets, transactions, header, scan.batch(scanned), first_dirty_offset)
            offsets.latest_offset = header.last_offset
        raise_if_cut(segment, scan)
        offsets.latest_offset = after - 1
    return offsets


def _add(
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    header: BatchHeader,
    batch: bytes,
    first_dirty_offset: int,
) -> None:
    if header.is_control:
        transactions.on_control(header, batch)
        return
    if transactions.on_data(header):
        return
    try:
        _, records = read_keyed_records(batch)
    except KafkaError as error:
        raise KafkaError(error.code, f"offset {header.base_offset}: {error.message}") from error
    for record in records:
        if record.key is not None and record.offset >= first_dirty_offset:
            offsets.put(record.key, record.offset)
