"""Walks by header alone over a segment in which a batch may be damaged: what they go by, and what they believe.

No checksum covers a batch's base offset, length, leader epoch and magic. A damaged length leads amid another batch or
behind several; any other damage leaves a header that stands where it should and says something else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

from barnabas.kernel.kafka_values import INT_MAX
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import ScannedBatch, scan_headers
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import HEADER_SIZE, MAGIC, crc_is_valid, parse_header


def scan_past_damage(file: SegmentFile, index: OffsetIndex, start: int, end: int) -> Iterator[ScannedBatch]:
    """As `scan_headers`, but no further from one batch that the index knows than to the next one. A damaged length has
    others be missed, and what is no header be read, up to there.
    """
    position = start
    for last_offset, known in index.entries_after(start):
        if known < end and _ends_with(file, known, last_offset):
            yield from scan_headers(file, position, known)
            position = known
    yield from scan_headers(file, position, end)


def _ends_with(file: SegmentFile, position: int, last_offset: int) -> bool:
    """Whether a batch with this last offset stands there: a former index may have been left, or be damaged itself."""
    header = file.read(position, HEADER_SIZE) if position >= 0 else b""
    return len(header) == HEADER_SIZE and parse_header(header).last_offset == last_offset


def in_place(batches: Iterable[ScannedBatch], base_offset: int) -> Iterator[tuple[ScannedBatch, bool]]:
    """A segment's batches, and of each whether it may stand where it does: offsets rise, and an index can hold them.
    The others are damaged, or no batches.

    Where one reaches to where its successor begins, either may be wrong, and this one is out of place; but a successor
    that begins in what was taken already is the wrong one, and who comes behind it counts instead.
    """
    next_offset, offset_max = base_offset, base_offset + INT_MAX
    for scanned, *successors in _with_successors(batches, 2):
        header = scanned.header
        begins = (each.header.base_offset for each in successors if each.header.magic == MAGIC)
        end = next((offset for offset in begins if offset >= next_offset), offset_max + 1)
        is_in_place = (
            header.magic == MAGIC
            and next_offset <= header.base_offset <= header.last_offset <= offset_max
            and header.last_offset < end
        )
        if is_in_place:
            next_offset = header.next_offset
        yield scanned, is_in_place


def _with_successors(batches: Iterable[ScannedBatch], count: int) -> Iterator[list[ScannedBatch]]:
    """Each batch, and as many as `count` that follow it."""
    window: deque[ScannedBatch | None] = deque(maxlen=1 + count)
    for each in chain(batches, repeat(None, count)):
        window.append(each)
        if len(window) > count:
            yield [each for each in window if each is not None]


class GreatestTimestamp:
    """The greatest timestamp of a segment's batches. Retention goes by it: one that is too early deletes too early.

    The time of a batch that is out of place counts where it begins as it should, or its checksum is right, for what is
    damaged may be elsewhere; its offset does not.
    """

    def __init__(self, file: SegmentFile, timestamp: int, offset: int) -> None:
        """`timestamp` in ms is known already, as is that it is reached at `offset`."""
        self.maximum = timestamp, offset
        """(greatest timestamp in ms, last offset of the first batch that has it, or of the one in place before it)"""
        self._file = file
        self._offset = offset
        self._next_offset = offset

    def take(self, scanned: ScannedBatch, *, is_in_place: bool) -> None:
        """Count the next one. Raises OSError."""
        header = scanned.header
        counts = is_in_place or header.base_offset == self._next_offset
        if is_in_place:
            self._offset, self._next_offset = header.last_offset, header.next_offset
        if header.max_timestamp > self.maximum[0] and (counts or self._is_whole(scanned)):
            self.maximum = header.max_timestamp, self._offset

    def _is_whole(self, scanned: ScannedBatch) -> bool:
        return crc_is_valid(self._file.read(scanned.position, scanned.header.size_in_bytes))
