"""Leader epochs of records that come before all that the epochs' file knows, read from their batches.

Records were deleted, and a crash brought them back: the file said so already, and the checkpoint of the log's start did
not. Or the file is lost. A log with records of no known epoch could follow nobody.

No checksum covers a batch's offset, length, magic and epoch, and none is looked at here. So a damaged batch may say
anything. One error does harm: that an epoch ends later than it did, for a follower then keeps what it has of it and
nobody else. Whatever is in doubt therefore counts for the epoch that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.segments.scan_past_damage import scan_past_damage
from barnabas.log.segments.segment import Segment
from barnabas.log.small_files import SyncError
from barnabas.records.batch import MAGIC, BatchHeader

logger = get_logger("log.opening")


class EpochRun(NamedTuple):
    """Batches of one epoch that follow one another; NO_EPOCH where none can be right."""

    epoch: int
    start_offset: int
    batches: int


def find_first_epochs(
    epochs: LeaderEpochCache,
    segments: Sequence[Segment],
    log_start_offset: int,
    log_end_offset: int,
    last_epoch: int = NO_EPOCH,
) -> None:
    """Have `epochs` know those of the first records, if it does not. `last_epoch` is that of the last batch of what
    nobody has checked: what is in doubt counts for it where nothing else follows. Raises OSError where they cannot be
    read, and SyncError where nobody knows whether they are written.
    """
    known = epochs.entries
    known_from = known[0].start_offset if known else log_end_offset
    if log_start_offset >= known_from:
        return
    runs = _runs(_epochs(segments, log_start_offset, known_from))
    if known:  # which outweighs all that was read
        batches = sum(run.batches for run in runs)
        runs.append(EpochRun(known[0].epoch, known_from, batches + 1))
    elif runs[-1].epoch == NO_EPOCH:
        runs.append(EpochRun(last_epoch, log_end_offset, 1))
    epochs.put_before(heaviest_rise(runs))
    try:
        epochs.flush(log_end_offset)
    except SyncError:
        raise
    except OSError as error:
        logger.warning("cannot keep the leader epochs that were read", file=epochs.path, reason=str(error))


def _epochs(segments: Sequence[Segment], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(leader epoch, first offset) of the batches with records from `start` to before `end`; NO_EPOCH from where on
    nothing is known. Where two segments overlap the next one counts.
    """
    at_start: tuple[int, int] | None = NO_EPOCH, start
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        ends = end if next_base is None else min(next_base, end)
        if ends <= start or segment.base_offset >= end:
            continue
        headers = _headers(segment, start)
        for epoch, offset in _epochs_of_segment(headers, max(start, segment.base_offset), ends, next_base):
            if offset <= start:
                at_start = epoch, start  # unless the next one begins there, too
                continue
            if at_start is not None:
                yield at_start
                at_start = None
            yield epoch, offset
    if at_start is not None:
        yield at_start


def _headers(segment: Segment, start: int) -> Iterator[BatchHeader]:
    """The headers of the batches from the offset `start` on, and some before it."""
    opened = segment.open()
    index = opened.offset_index
    # An entry that is damaged could have an index say that even the first offset stands further on.
    position = index.position_for(start) if start > segment.base_offset else 0
    for scanned in scan_past_damage(opened.file, index, position, segment.size):
        yield scanned.header


def _epochs_of_segment(
    headers: Iterable[BatchHeader], expected: int, end: int, next_base: int | None
) -> Iterator[tuple[int, int]]:
    """The same of one segment from `expected` on; the next segment begins with `next_base`, if there is one.

    A batch is right whose end its successor does not come before. Between two there may be a gap, in the copy of a
    compacted log: it belongs to the later one.
    """
    last = -1
    for header, following in pairwise(chain(headers, (None,))):
        assert header is not None, "only the last is followed by nothing"
        begins, ends = header.base_offset, header.next_offset
        follows = next_base if following is None else following.base_offset
        is_right = (
            header.magic == MAGIC
            and 0 <= header.record_count <= ends - begins
            and last < begins < ends
            and (follows is None or ends <= follows)
        )
        if is_right and begins >= end:
            break
        if not is_right or begins > expected:
            yield NO_EPOCH, expected
        if is_right:
            yield header.partition_leader_epoch, begins
            last, expected = begins, ends
    if expected < end:
        yield NO_EPOCH, expected


def _runs(epochs: Iterable[tuple[int, int]]) -> list[EpochRun]:
    """What is not known amid one epoch does not part its run: a compacted log may have thousands of gaps."""
    runs: list[EpochRun] = []
    for said, offset in epochs:
        epoch = max(said, NO_EPOCH)
        if len(runs) > 1 and runs[-1].epoch == NO_EPOCH and runs[-2].epoch == epoch:
            del runs[-1]
        if runs and runs[-1].epoch == epoch:
            runs[-1] = runs[-1]._replace(batches=runs[-1].batches + 1)
        else:
            runs.append(EpochRun(epoch, offset, 1))
    return runs


def heaviest_rise(runs: Sequence[EpochRun]) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of those `runs` whose epochs never fall, with as many batches as there can be: the
    others are damaged. Each begins where the one before it ends, with what is left out in between.
    """
    numbers = [number for number, run in enumerate(runs) if run.epoch >= 0]
    if not all(runs[number].epoch <= runs[later].epoch for number, later in pairwise(numbers)):
        numbers = _heaviest(runs, numbers)  # which looks at each pair
    return [
        (runs[number].epoch, runs[before + 1].start_offset) for before, number in pairwise((-1, *numbers))
    ]


class _Rise(NamedTuple):
    """Some of the runs, whose epochs never fall: its last one's number, and the rise up to that."""

    batches: int
    number: int
    before: _Rise | None


def _heaviest(runs: Sequence[EpochRun], numbers: Sequence[int]) -> list[int]:
    """The numbers of the runs, of those with `numbers`, that have the most batches and whose epochs never fall."""
    rises: list[_Rise] = []
    """The heaviest that ends with each run."""
    for number in numbers:
        lower = (each for each in rises if runs[each.number].epoch <= runs[number].epoch)
        # Of equals the first: then the later epoch begins early.
        before = max(lower, key=lambda each: each.batches, default=None)
        batches = runs[number].batches + (before.batches if before is not None else 0)
        rises.append(_Rise(batches, number, before))
    rise = max(rises, key=lambda each: each.batches, default=None)
    found: list[int] = []
    while rise is not None:
        found.append(rise.number)
        rise = rise.before
    return found[::-1]
