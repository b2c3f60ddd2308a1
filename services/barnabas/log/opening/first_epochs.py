"""Leader epochs of records that come before all that the epochs' file knows, read from their batches.

Records were deleted, and a crash brought them back: the file said so already, and the checkpoint of the log's start did
not. Or the file is lost. A log with records of no known epoch could follow nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment import Segment
from barnabas.log.small_files import SyncError
from barnabas.records.batch import MAGIC, BatchHeader


class EpochRun(NamedTuple):
    """Batches of one epoch that follow one another."""

    epoch: int
    start_offset: int
    batches: int


def find_first_epochs(
    epochs: LeaderEpochCache,
    segments: Sequence[Segment],
    log_start_offset: int,
    log_end_offset: int,
) -> None:
    """Have `epochs` know those of the first records, if it does not. Raises OSError where they cannot be read, and
    SyncError where nobody knows whether they are written.
    """
    known = epochs.entries
    known_from = known[0].start_offset if known else log_end_offset
    if log_start_offset >= known_from:
        return
    runs = _runs(_epochs(segments, log_start_offset, known_from))
    if known:  # which outweighs all that was read
        batches = sum(run.batches for run in runs)
        runs.append(EpochRun(known[0].epoch, known_from, batches + 1))
    epochs.put_before(heaviest_rise(runs))
    try:
        epochs.flush(log_end_offset)
    except SyncError:
        raise
    except OSError:
        pass  # there is no room: the next start reads them again


def _epochs(segments: Sequence[Segment], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(first offset, leader epoch) of the batches with records from `start` to before `end`; NO_EPOCH where that cannot
    be right. Where two segments overlap the next one counts.
    """
    at_start: tuple[int, int] | None = start, NO_EPOCH
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        ends = end if next_base is None else min(next_base, end)
        if ends <= start or segment.base_offset >= end:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        scanned = scan_headers(segment.open().file, position, segment.size)
        headers = (each.header for each in scanned)
        first = None if position else segment.base_offset
        for offset, epoch in _epochs_of(headers, first, ends, next_base):
            if offset <= start:
                at_start = start, epoch  # unless the next one begins there, too
                continue
            if at_start is not None:
                yield at_start
                at_start = None
            yield offset, epoch
    if at_start is not None:
        yield at_start


def _epochs_of(
    headers: Iterator[BatchHeader], expected: int | None, end: int, next_base: int | None
) -> Iterator[tuple[int, int]]:
    """The same of the batches of one segment. It begins with `expected`, and the next one with `next_base`, where these
    are known.

    No checksum covers a batch's offset, length, magic and epoch, and none is looked at here. But a log that was never
    compacted has no gaps: where there is one, a batch is right whose end is its successor's beginning.
    """
    last = -1 if expected is None else expected - 1
    header = next(headers, None)
    while header is not None:
        following = next(headers, None)
        begins, ends = header.base_offset, header.next_offset
        follows = next_base if following is None else following.base_offset
        if begins >= end and (follows is None or follows > begins):
            break
        is_right = (
            header.magic == MAGIC
            and header.record_count == ends - begins
            and (begins == expected or (begins > last and follows in (ends, None)))
        )
        if expected is not None and not (is_right and begins == expected):
            yield (min(begins, expected) if is_right else expected), NO_EPOCH
        if is_right:
            yield begins, header.partition_leader_epoch
            last, expected = begins, ends
        header = following
    if expected is not None and expected < end:
        yield expected, NO_EPOCH


def _runs(epochs: Iterator[tuple[int, int]]) -> list[EpochRun]:
    runs: list[EpochRun] = []
    for offset, epoch in epochs:
        if runs and runs[-1].epoch == epoch:
            runs[-1] = runs[-1]._replace(batches=runs[-1].batches + 1)
        else:
            runs.append(EpochRun(epoch, offset, 1))
    return runs


def heaviest_rise(runs: Sequence[EpochRun]) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of those `runs` whose epochs rise, with as many batches as there can be.

    What lies in between is damaged, and counts for the next epoch: who has other records of the epoch before in its
    place is to drop these.
    """
    if all(one.epoch < next_one.epoch for one, next_one in pairwise(runs)) and runs and runs[0].epoch >= 0:
        return [(run.epoch, run.start_offset) for run in runs]
    sums: list[int] = []
    """Batches of the heaviest rise that ends with each run; 0 for one that can be part of none."""
    before: list[int] = []
    """The run before it in that, -1 where it is the first."""
    for at, run in enumerate(runs):
        lower = [each for each in range(at) if sums[each] and runs[each].epoch <= run.epoch]
        best = max(lower, key=sums.__getitem__, default=-1)
        sums.append((run.batches + (sums[best] if lower else 0)) if run.epoch >= 0 else 0)
        before.append(best)
    rise: list[tuple[int, int]] = []
    at = max(range(len(runs)), key=sums.__getitem__, default=-1)
    while at >= 0 and sums[at]:
        rise.append((runs[at].epoch, runs[before[at] + 1].start_offset))
        at = before[at]
    return rise[::-1]
