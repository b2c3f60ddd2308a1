"""Opening a partition's log: find its segments, recover what a crash left, rebuild the producer state.

After a clean shutdown only the last segment's end is looked at. After any other, every segment from the recovery
point on is checked batch by batch and cut at the first bad one; segments behind a cut are removed, since their
offsets would leave a hole where acknowledged records stood.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import NamedTuple

from barnabas.kernel.errors import KafkaError
from barnabas.log import producer_snapshot
from barnabas.log.interrupted import finish_interrupted_work
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.producer_state import CompletedTransaction, ProducerState
from barnabas.log.scan import ScannedBatch, scan_headers
from barnabas.log.segment import LOG_SUFFIX, Segment, remove_marked
from barnabas.log.segment_factory import SegmentFactory
from barnabas.log.transaction_index import AbortedTransaction
from barnabas.records.control import decode_marker

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    segments_checked: int = 0
    """Segments whose every batch was checked."""
    bytes_truncated: int = 0
    truncated_at_offset: int = -1
    """The new log end offset, where something was cut; -1 otherwise."""
    reason: str = ""
    """Why the scan stopped where it cut."""
    segments_removed: tuple[int, ...] = ()
    """Base offsets of the segments behind the cut."""
    snapshot_offset: int = -1
    """The producer snapshot that the state was rebuilt from; -1 for none."""


class LoadedLog(NamedTuple):
    """What `load` hands to the partition log."""

    segments: tuple[Segment, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producer_state: ProducerState
    report: RecoveryReport


def load(
    directory: str,
    factory: SegmentFactory,
    epochs: LeaderEpochCache,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
) -> LoadedLog:
    """Load the log of one partition from its directory; creates the first segment of an empty one."""
    finish_interrupted_work(directory)
    segments = _find_segments(directory, factory)
    if not segments:
        # A log whose files are gone starts where its checkpoint says it started.
        segments = [factory.create(log_start_offset)]
    first_checked, report, log_end_offset = _recover(segments, recovery_point, clean_shutdown)
    segments[-1].pin()
    log_start_offset = min(max(log_start_offset, segments[0].base_offset), log_end_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    if report.segments_checked:
        _restore_epochs(segments[first_checked:], epochs)
    snapshot_max = segments[first_checked].base_offset if report.segments_checked else log_end_offset
    state, snapshot_offset = rebuild_producer_state(directory, segments, log_end_offset, snapshot_max)
    report = dataclasses.replace(report, snapshot_offset=snapshot_offset)
    if report.bytes_truncated or report.segments_removed:
        logger.warning(
            "%s: truncated %d bytes at offset %d (%s), removed %d segments behind it",
            directory,
            report.bytes_truncated,
            report.truncated_at_offset,
            report.reason,
            len(report.segments_removed),
        )
    recovered_to = log_end_offset if clean_shutdown else min(recovery_point, log_end_offset)
    return LoadedLog(tuple(segments), log_start_offset, log_end_offset, recovered_to, state, report)


def _find_segments(directory: str, factory: SegmentFactory) -> list[Segment]:
    """Every segment with a `.log` file, by base offset; files that belong to none are removed."""
    names = os.listdir(directory)
    bases = sorted(
        int(name.removesuffix(LOG_SUFFIX))
        for name in names
        if name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdigit()
    )
    known = set(bases)
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in (".index", ".timeindex", ".txnindex") and stem.isdigit() and int(stem) not in known:
            os.unlink(os.path.join(directory, name))
    return [factory.find(base) for base in bases]


def _recover(
    segments: list[Segment], recovery_point: int, clean_shutdown: bool
) -> tuple[int, RecoveryReport, int]:
    """(number of the first segment checked, report, log end offset); `segments` loses those behind a cut."""
    if clean_shutdown:
        end_offset = _end_of_clean(segments[-1])
        if end_offset is not None:
            return len(segments) - 1, RecoveryReport(), end_offset
        recovery_point = segments[-1].base_offset
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= recovery_point:
        first += 1
    number = first
    while True:
        segment = segments[number]
        scan = segment.recover()
        behind = segments[number + 1 :]
        truncated = scan.size - scan.valid_bytes
        overlaps = bool(behind) and behind[0].base_offset < scan.next_offset
        if truncated or overlaps or not behind:
            break
        segment.unpin()
        number += 1
    reason = scan.stopped_by or ("the next segment overlaps this one" if overlaps else "")
    removed = tuple(old.base_offset for old in behind)
    for old in behind:
        truncated += old.size
        remove_marked(old.mark_deleted())
    del segments[number + 1 :]
    report = RecoveryReport(
        segments_checked=number - first + 1,
        bytes_truncated=truncated,
        truncated_at_offset=scan.next_offset if truncated else -1,
        reason=reason,
        segments_removed=removed,
    )
    return first, report, scan.next_offset


def _end_of_clean(segment: Segment) -> int | None:
    """The next offset after a segment that was closed properly; None when its end is not a batch's end."""
    opened = segment.open()
    position, next_offset = opened.offset_index.last_position(), segment.base_offset
    for scanned in scan_headers(opened.file, position, segment.size):
        position = scanned.position + scanned.header.size_in_bytes
        if scanned.header.magic != 2 or scanned.header.next_offset <= next_offset:
            return None
        next_offset = scanned.header.next_offset
    return next_offset if position == segment.size else None


def _restore_epochs(segments: list[Segment], epochs: LeaderEpochCache) -> None:
    """The epochs that the recovered batches carry; the checkpoint may be older than they are."""
    for segment in segments:
        for _, header in scan_headers(segment.open().file, 0, segment.size):
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, header.base_offset)


def rebuild_producer_state(
    directory: str, segments: list[Segment], log_end_offset: int, snapshot_max: int
) -> tuple[ProducerState, int]:
    """The state at the log's end, and the offset of the snapshot it starts from (-1 for none).

    Starts from the newest good snapshot at or before `snapshot_max` and replays the batch headers after it.
    Snapshots past `snapshot_max` are removed, since they may speak of batches that are gone.
    """
    loaded = producer_snapshot.load_snapshot(directory, snapshot_max)
    # One snapshot per segment stays, and the newest: the one that closing the log wrote.
    kept = {segment.base_offset for segment in segments} | ({loaded[0]} if loaded is not None else set())
    offsets = producer_snapshot.snapshot_offsets(directory)
    stray = [offset for offset in offsets if offset > snapshot_max or offset not in kept]
    producer_snapshot.remove_snapshots(directory, stray)
    state = ProducerState(segments[0].base_offset)
    start = segments[0].base_offset
    if loaded is not None and loaded[0] >= start:
        start = loaded[0]
        state.restore(loaded[1], start)
    for number, segment in enumerate(segments):
        ends = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        if ends > start:
            _replay_segment(state, segment, start)
    state.end_offset = log_end_offset
    return state, loaded[0] if loaded is not None else -1


def _replay_segment(state: ProducerState, segment: Segment, start_offset: int) -> None:
    file = segment.open().file
    start = segment.position_of(start_offset) if start_offset > segment.base_offset else 0
    for scanned in scan_headers(file, start, segment.size):
        header = scanned.header
        if header.base_offset < start_offset or header.producer_id < 0:
            continue
        if header.is_control:
            replay_control(state, segment, scanned, file.read(scanned.position, header.size_in_bytes))
        else:
            state.replay(header, header.base_offset, header.max_timestamp)


def replay_control(state: ProducerState, segment: Segment, scanned: ScannedBatch, batch: bytes) -> None:
    """A control batch stands in `segment`: end its transaction and list it there if it was aborted."""
    header = scanned.header
    try:
        marker = decode_marker(batch)
    except KafkaError as error:
        logger.warning("%s: offset %d: %s", segment.directory, header.base_offset, error)
        return
    if marker is not None:
        record_completion(segment, state.replay_marker(header, marker, header.base_offset))


def record_completion(segment: Segment, completed: CompletedTransaction | None) -> None:
    """List an aborted transaction in the segment that holds its marker. Raises OSError."""
    if completed is not None and completed.aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )
