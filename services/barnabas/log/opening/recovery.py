"""What a crash may have done to a log's segments, and what becomes of them.

Above the recovery point nothing was certain to be on disk, so every batch there is checked: CRC, size, offsets. A bad
one ends the log, as in Kafka. The segments behind it are set aside, not deleted: nobody asked for that, and on the
only replica they may be the only copy.

A segment that ends cleanly, but before its successor begins, lost its tail at a batch's boundary. Kafka goes on over
such a gap, since compaction leaves them, too. So does this log: what follows keeps its offsets, and consumers their
positions; but the gap is reported as what it is, unless the log was ever compacted. Below the recovery point only the
ends of segments are looked at, from their last index entry on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.segments.scan import CheckedScan, ScannedBatch
from barnabas.log.segments.segment import LOG_SUFFIX, OnBatch, Segment, remove_marked
from barnabas.log.segments.segment_end import SegmentEnd, read_end
from barnabas.log.small_files import exists, sync_directory

ASIDE_SUFFIX = ".aside"
"""What the name of a `.log` file ends with that recovery took out of the log; nothing here ever removes it."""


class Gap(NamedTuple):
    """Offsets from `start` to before `end` should be in the log, and are not."""

    start: int
    end: int


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    segments_checked: int = 0
    """Segments whose every batch was checked."""
    bytes_checked: int = 0
    bytes_truncated: int = 0
    """Bytes cut off behind the last good batch."""
    truncated_at_offset: int = -1
    """The new log end offset, where something was cut; -1 otherwise."""
    reason: str = ""
    """Why the scan stopped where it cut."""
    segments_set_aside: tuple[int, ...] = ()
    """Base offsets of the segments behind the cut."""
    bytes_set_aside: int = 0
    gaps: list[Gap] = field(default_factory=list)
    """Where the end of a segment was lost."""
    overlaps: tuple[int, ...] = ()
    """Base offsets of segments that begin before the one before them ends."""
    orphans_removed: tuple[int, ...] = ()
    """Base offsets of empty segments that a roll left behind when it failed."""
    lost_below_recovery_point: int = 0
    """Offsets that had been synced to disk, and are not there."""
    snapshot_offset: int = -1
    """The producer snapshot that the state was rebuilt from; -1 for none."""


def remove_orphans(segments: list[Segment], report: RecoveryReport) -> None:
    """Drop empty segments that begin before the one before them ends: a roll failed after it had created them."""
    if all(segment.size for segment in segments[1:]):
        return
    kept = segments[:1]
    orphans = []
    for segment in segments[1:]:
        if segment.size == 0 and segment.base_offset < end_of(kept[-1]).next_offset:
            remove_marked(segment.files, segment.mark_deleted())
            orphans.append(segment.base_offset)
        else:
            kept.append(segment)
    segments[:] = kept
    report.orphans_removed = tuple(orphans)


def end_of(segment: Segment) -> SegmentEnd:
    """The segment's end by its headers. Raises OSError."""
    return read_end(segment.files, segment.directory, segment.base_offset)


def first_unchecked(segments: list[Segment], recovery_point: int) -> int:
    """The number of the segment that holds the recovery point; from it on every batch is checked."""
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= recovery_point:
        first += 1
    if first and segments[first].base_offset == recovery_point:
        # Its batches are on the disk. Its indexes were written when it was rolled, and nobody says that they are, too.
        segments[first - 1].are_indexes_doubtful = True
    return first


def compare_ends(segments: list[Segment], count: int, report: RecoveryReport, *, has_gaps: bool) -> None:
    """Hold the ends of the first `count` segments against their successors. Raises OSError.

    With `has_gaps` (the log was compacted) only those that end within a batch are reported.
    """
    for segment, following in pairwise(segments[: count + 1]):
        end = end_of(segment)
        if end.position != segment.size:
            report.gaps.append(Gap(end.next_offset, following.base_offset))
            # What follows the last whole batch is for no reader; the file stays as it is.
            segment.size = end.position
        else:
            _compare(end.next_offset, following, report, has_gaps=has_gaps)


def _compare(next_offset: int, following: Segment, report: RecoveryReport, *, has_gaps: bool) -> None:
    if next_offset < following.base_offset and not has_gaps:
        report.gaps.append(Gap(next_offset, following.base_offset))
    elif next_offset > following.base_offset:
        report.overlaps += (following.base_offset,)


def check_segments(
    segments: list[Segment],
    first: int,
    report: RecoveryReport,
    on_batch: Callable[[Segment, CheckedScan, ScannedBatch], None],
    on_following: Callable[[Segment], None],
    *,
    has_gaps: bool,
) -> int:
    """Check every batch from segment number `first` on; returns the log end offset. Raises OSError.

    `on_following` gets each segment before its own batches, if others were checked before.

    Cuts the log at the first bad batch: `segments` loses those behind it, the last one first and before the cut, so
    that a crash in the midst of it finds the bad batch again. Where segments overlap the later one is read, as it was
    before the crash; the log ends behind both.
    """
    log_end_offset = 0
    for number in range(first, len(segments)):
        segment = segments[number]
        behind = segments[number + 1 :]
        if number > first:
            on_following(segment)
        scan = segment.recover(_on_batch_of(segment, on_batch), is_active=not behind)
        report.segments_checked += 1
        report.bytes_checked += scan.size
        log_end_offset = max(log_end_offset, scan.next_offset)
        if scan.valid_bytes < scan.size:
            report.bytes_truncated = scan.size - scan.valid_bytes
            report.truncated_at_offset = log_end_offset
            report.reason = scan.stopped_by
            _set_aside(behind, report)
            del segments[number + 1 :]
            segment.cut()
            sync_directory(segment.files, segment.directory)
            break
        if behind:
            _compare(scan.next_offset, behind[0], report, has_gaps=has_gaps)
            segment.unpin()
    return log_end_offset


def _on_batch_of(segment: Segment, on_batch: Callable[[Segment, CheckedScan, ScannedBatch], None]) -> OnBatch:
    return lambda scan, scanned: on_batch(segment, scan, scanned)


def _set_aside(segments: list[Segment], report: RecoveryReport) -> None:
    """Take segments out of the log; their `.log` files stay, under another name."""
    for segment in reversed(segments):
        if segment.size:
            path = segment.path(LOG_SUFFIX)
            segment.files.rename(path, _free_name(segment.files, path + ASIDE_SUFFIX))
            report.bytes_set_aside += segment.size
        remove_marked(segment.files, segment.mark_deleted())
    report.segments_set_aside = tuple(segment.base_offset for segment in segments)


def _free_name(files: Files, path: str) -> str:
    """`path`, or with a number behind it where an earlier crash left a file of that name."""
    name, number = path, 0
    while exists(files, name):
        number += 1
        name = f"{path}.{number}"
    return name
