"""Opening a partition's log: find its segments, recover what a crash left, rebuild the producer state.

After a clean shutdown only the last segment's end is looked at: it is the recovery point. After any other, see
`recovery`. One listing of the directory and one walk over what has to be checked serve everything, since a node may
hold thousands of logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.cleaning.segment_swap import rename_all
from barnabas.log.opening.first_epochs import find_first_epochs
from barnabas.log.opening.interrupted import finish_interrupted_work
from barnabas.log.opening.recovery import (
    ASIDE_SUFFIX,
    RecoveryReport,
    check_segments,
    compare_ends,
    end_of,
    first_unchecked,
    remove_orphans,
)
from barnabas.log.producers import producer_snapshot
from barnabas.log.producers.producer_state import CompletedTransaction, ProducerState
from barnabas.log.segments.scan import CheckedScan, ScannedBatch, scan_headers
from barnabas.log.segments.segment import LOG_SUFFIX, TEMPORARY_SUFFIX, Segment, remove_marked
from barnabas.log.segments.segment_factory import SegmentFactory, base_offset_of
from barnabas.log.segments.transaction_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import decode_marker

logger = get_logger("log.opening")


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
    was_compacted: bool = False,
) -> LoadedLog:
    """Load the log of one partition from its directory; creates the first segment of an empty one.

    `clean_shutdown` says that the log directory was closed properly, and is believed of a log that ends at its recovery
    point. One that goes on behind it was away then, and nobody has checked it since it crashed. `was_compacted` says
    that segments may end before their successor begins. Raises OSError.
    """
    names = finish_interrupted_work(factory.files, directory)
    report = RecoveryReport()
    segments = _find_segments(directory, factory, names)
    if not segments:
        # A log whose files are gone starts where its checkpoint says it started.
        segments = [factory.create(log_start_offset)]
    remove_orphans(segments, report)
    log_end_offset = _end_of_clean(segments[-1], recovery_point) if clean_shutdown else None
    if log_end_offset is not None:
        first = len(segments)
    else:
        first = first_unchecked(segments, recovery_point)
        compare_ends(segments, first, report, has_gaps=was_compacted)
    # Before an index of them is built anew; those of what is checked are known then.
    last_epoch = NO_EPOCH if epochs.entries else _last_epoch(segments[:first])
    # The state before the first batch that is checked; the check replays the rest.
    known_end = segments[first].base_offset if log_end_offset is None else log_end_offset
    state, report.snapshot_offset = _producer_state_at(
        factory.files, directory, names, segments, known_end, known_end
    )
    checker = _Checker(state)
    if log_end_offset is None:
        log_end_offset = check_segments(
            segments, first, report, checker.on_batch, checker.on_following, has_gaps=was_compacted
        )
        report.lost_below_recovery_point = max(0, recovery_point - log_end_offset)
    recovery_point = min(recovery_point, log_end_offset)
    if log_end_offset < log_start_offset:
        # Kafka does the same: whatever is left, retention or DeleteRecords had removed.
        segments, log_end_offset = _begin_at(directory, factory, segments, log_start_offset), log_start_offset
        state.clear(log_start_offset)
    segments[-1].pin()
    state.end_offset = log_end_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    # What the checkpoint says of checked batches may come from before a truncation; the batches know.
    epochs.truncate_from_end(min(known_end, log_end_offset))
    epochs.truncate_from_start(log_start_offset)
    _assign_all(epochs, checker.epoch_starts, log_end_offset)
    # Of a compacted log an epoch's first batch may be gone; and what a proper stop has written is all there is.
    if not was_compacted and not (first == len(segments) and epochs.entries):
        find_first_epochs(epochs, segments, log_start_offset, log_end_offset, last_epoch)
    _log_findings(directory, report, log_end_offset)
    return LoadedLog(tuple(segments), log_start_offset, log_end_offset, recovery_point, state, report)


def _begin_at(
    directory: str, factory: SegmentFactory, segments: Sequence[Segment], offset: int
) -> list[Segment]:
    """An empty log in place of these segments. At no time is there no segment at all, or it would count as lost."""
    factory.create_aside(offset)
    for segment in segments:
        remove_marked(segment.files, segment.mark_deleted())
    rename_all(factory.files, directory, offset, TEMPORARY_SUFFIX, "")
    return [factory.find(offset)]


def _assign_all(epochs: LeaderEpochCache, starts: Sequence[tuple[int, int]], log_end_offset: int) -> None:
    for epoch, start_offset in starts:
        if epoch > epochs.latest_epoch and start_offset < log_end_offset:
            epochs.assign(epoch, start_offset)


def _find_segments(directory: str, factory: SegmentFactory, names: Sequence[str]) -> list[Segment]:
    """Every segment with a `.log` file, by base offset; index files that belong to none are removed."""
    bases = {base for name in names if (base := base_offset_of(name)) is not None}
    for name in names:
        stem, _, suffix = name.partition(".")
        if suffix in _INDEX_SUFFIXES and stem.isdecimal() and int(stem) not in bases:
            factory.files.unlink(f"{directory}/{name}")
    return [factory.find(base) for base in sorted(bases)]


_INDEX_SUFFIXES = ("index", "timeindex", "txnindex")


def _end_of_clean(segment: Segment, recovery_point: int) -> int | None:
    """The next offset after the last segment of a log that was closed properly; None when its end is not a batch's end,
    or lies past the recovery point.
    """
    end = end_of(segment)
    is_clean = end.position == segment.size and end.next_offset <= recovery_point
    return end.next_offset if is_clean else None


def _last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the last batch of these segments, which nobody checks; -1 if there is none. By the indexes as
    they were written: one that is built anew knows nothing behind a damaged length. Raises OSError.
    """
    last = next((segment for segment in reversed(segments) if segment.size), None)
    return NO_EPOCH if last is None else end_of(last).leader_epoch


class _Checker:
    """Collects from the batches that recovery stops at what is rebuilt from them."""

    def __init__(self, state: ProducerState) -> None:
        self.epoch_starts: list[tuple[int, int]] = []
        """(leader epoch, first offset) where the epoch rises; the epochs' checkpoint may be older than the batches."""
        self._state = state
        self._latest_epoch = NO_EPOCH

    def on_batch(self, segment: Segment, scan: CheckedScan, scanned: ScannedBatch) -> None:
        header = scanned.header
        if header.partition_leader_epoch > self._latest_epoch:
            self._latest_epoch = header.partition_leader_epoch
            self.epoch_starts.append((header.partition_leader_epoch, header.base_offset))
        if header.producer_id >= 0:
            _replay(self._state, segment, header, lambda: scan.batch(scanned))

    def on_following(self, segment: Segment) -> None:
        """Keep the producers' state at the segment's start, as its roll did: the next start begins there."""
        producers = self._state.producers.values()
        producer_snapshot.write_snapshot(
            segment.files, segment.directory, segment.base_offset, producers, sync=False
        )


def _log_findings(directory: str, report: RecoveryReport, log_end_offset: int) -> None:
    """One line for each thing that whoever runs the node has to know, with what was lost and what was not."""
    said = logger.bind(log=directory)
    if report.orphans_removed:
        said.warning("removed the empty segments of a roll that failed", segments=report.orphans_removed)
    if report.bytes_truncated:
        said.warning(
            "truncated the log",
            offset=report.truncated_at_offset,
            bytes=report.bytes_truncated,
            reason=report.reason,
        )
    if report.segments_set_aside:
        said.error(
            "segments stand behind the batch at which the log was truncated; they were set aside and can be read with "
            "a dump tool",
            segments=len(report.segments_set_aside),
            bytes=report.bytes_set_aside,
            first_offset=report.segments_set_aside[0],
            files=f"*{LOG_SUFFIX}{ASIDE_SUFFIX}",
        )
    for gap in report.gaps:
        said.error(
            "offsets are lost: the end of their segment is not on the disk",
            offsets=gap.end - gap.start,
            first_offset=gap.start,
            last_offset=gap.end - 1,
        )
    if report.overlaps:
        said.error(
            "segments begin before the one before them ends; the later one is read where they overlap",
            segments=report.overlaps,
        )
    if report.lost_below_recovery_point:
        said.error(
            "the log ends below what had been synced: the disk has lost it",
            log_end_offset=log_end_offset,
            offsets=report.lost_below_recovery_point,
        )


def rebuild_producer_state(
    files: Files, directory: str, segments: Sequence[Segment], log_end_offset: int, snapshot_max: int
) -> tuple[ProducerState, int]:
    """The state at the log's end, and the offset of the snapshot it starts from (-1 for none).

    Starts from the newest good snapshot at or before `snapshot_max` and replays the batch headers after it.
    Snapshots past `snapshot_max` are removed, since they may speak of batches that are gone. Raises OSError.
    """
    return _producer_state_at(
        files, directory, files.listdir(directory), segments, log_end_offset, snapshot_max
    )


def _producer_state_at(
    files: Files,
    directory: str,
    names: Sequence[str],
    segments: Sequence[Segment],
    end_offset: int,
    snapshot_max: int,
) -> tuple[ProducerState, int]:
    """The state at `end_offset`, from the directory's files `names`; as `rebuild_producer_state`."""
    offsets = producer_snapshot.snapshot_offsets(names)
    loaded = producer_snapshot.load_snapshot(files, directory, offsets, snapshot_max)
    # One snapshot per segment stays, and the newest: the one that closing the log wrote.
    kept = {segment.base_offset for segment in segments} | ({loaded[0]} if loaded is not None else set())
    stray = [offset for offset in offsets if offset > snapshot_max or offset not in kept]
    producer_snapshot.remove_snapshots(files, directory, stray)
    start = segments[0].base_offset
    state = ProducerState(start)
    if loaded is not None and loaded[0] >= start:
        start = loaded[0]
        state.restore(loaded[1], start)
    for number, segment in enumerate(segments):
        ends = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if start < ends and segment.base_offset < end_offset:
            _replay_segment(state, segment, start)
    state.end_offset = end_offset
    return state, loaded[0] if loaded is not None else -1


def _replay_segment(state: ProducerState, segment: Segment, start_offset: int) -> None:
    file = segment.open().file
    start = segment.position_of(start_offset) if start_offset > segment.base_offset else 0
    for scanned in scan_headers(file, start, segment.size):
        header = scanned.header
        if header.base_offset >= start_offset and header.producer_id >= 0:
            _replay(state, segment, header, partial(file.read, scanned.position, header.size_in_bytes))


def _replay(state: ProducerState, segment: Segment, header: BatchHeader, read: Callable[[], bytes]) -> None:
    """A batch of a producer stands in `segment`; a control batch ends its transaction, and is listed if aborted."""
    if not header.is_control:
        state.replay(header, header.base_offset, header.max_timestamp)
        return
    try:
        marker = decode_marker(read())
    except KafkaError as error:
        logger.warning(
            "cannot read a transaction's marker",
            log=segment.directory,
            offset=header.base_offset,
            reason=str(error),
        )
        return
    if marker is not None:
        record_completion(segment, state.replay_marker(header, marker, header.base_offset))


def record_completion(segment: Segment, completed: CompletedTransaction | None) -> None:
    """List an aborted transaction in the segment that holds its marker."""
    if completed is not None and completed.aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )
