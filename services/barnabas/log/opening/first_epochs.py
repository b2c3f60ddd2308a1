"""Leader epochs of records that come before all that the epochs' file knows, read from their batches.

Records were deleted, and a crash brought them back: the file said so already, and the checkpoint of the log's start did
not. Or the file is lost. A log with records of no known epoch could follow nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.kernel.kafka_values import INT_MAX, NO_EPOCH
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment import Segment
from barnabas.records.batch import MAGIC


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
    """Have `epochs` know those of the first records, if it does not. Raises OSError where they cannot be read."""
    known = epochs.entries
    known_from = known[0].start_offset if known else log_end_offset
    if log_start_offset >= known_from:
        return
    runs = _runs(_epochs(segments, log_start_offset, known_from))
    epochs.put_before(heaviest_rise(runs, known[0].epoch if known else INT_MAX))
    with contextlib.suppress(OSError):  # the next start would read them again
        epochs.flush(log_end_offset)


def _epochs(segments: Sequence[Segment], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(first offset, leader epoch) of each batch with records from `start` to before `end`; NO_EPOCH where no batch can
    be read. Where two segments overlap the next one counts.
    """
    for number, segment in enumerate(segments):
        ends = min(segments[number + 1].base_offset, end) if number + 1 < len(segments) else end
        if ends <= start or segment.base_offset >= end:
            continue
        opened = segment.open().file
        position = segment.position_of(start) if start > segment.base_offset else 0
        next_offset = segment.base_offset
        for scanned in scan_headers(opened, position, segment.size):
            header = scanned.header
            if header.magic != MAGIC or header.base_offset < next_offset:
                yield max(next_offset, start), NO_EPOCH  # no checksum covers these, nor the epoch
                continue
            if header.base_offset >= ends:
                break
            next_offset = header.next_offset
            if header.last_offset >= start:
                yield max(header.base_offset, start), header.partition_leader_epoch
        if next_offset < ends:
            yield max(next_offset, start), NO_EPOCH


def _runs(epochs: Iterator[tuple[int, int]]) -> list[EpochRun]:
    runs: list[EpochRun] = []
    for offset, epoch in epochs:
        if runs and runs[-1].epoch == epoch:
            runs[-1] = runs[-1]._replace(batches=runs[-1].batches + 1)
        else:
            runs.append(EpochRun(epoch, offset, 1))
    return runs


def heaviest_rise(runs: Sequence[EpochRun], epoch_max: int) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of those `runs` whose epochs rise, to `epoch_max` at most, with as many batches as
    there can be. Batches in between are damaged, and count for the next epoch: who had others of the epoch before in
    their place is to drop these.
    """
    sums: list[int] = []
    """Batches of the heaviest rise that ends with each run; 0 for one that can be part of none."""
    before: list[int] = []
    """The run before it in that, -1 where it is the first."""
    for at, run in enumerate(runs):
        is_usable = 0 <= run.epoch <= epoch_max
        lower = [each for each in range(at) if sums[each] and runs[each].epoch <= run.epoch]
        best = max(lower, key=sums.__getitem__, default=-1)
        sums.append((run.batches + (sums[best] if lower else 0)) if is_usable else 0)
        before.append(best)
    rise: list[tuple[int, int]] = []
    at = max(range(len(runs)), key=sums.__getitem__, default=-1)
    while at >= 0 and sums[at]:
        rise.append((runs[at].epoch, runs[before[at] + 1].start_offset))
        at = before[at]
    return rise[::-1]
