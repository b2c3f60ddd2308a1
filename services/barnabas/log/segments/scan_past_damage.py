"""Walks by header alone over a segment in which a batch may be damaged: what they go by, and what they believe.

No checksum covers a batch's base offset, length, leader epoch and magic. A damaged length leads amid another batch or
behind several; any other damage leaves a header that stands where it should and says something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.kernel.kafka_values import INT_MAX, LONG_MAX
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import ScannedBatch, checksum_of, scan_headers
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, parse_header


def scan_past_damage(file: SegmentFile, index: OffsetIndex, start: int, end: int) -> Iterator[ScannedBatch]:
    """As `scan_headers`, but no further from one batch that the index knows than to the next one. A damaged length has
    others be missed, and what is no header be read, up to there.

    A header whose batch would go further comes as well: it may be right in all but its length, or be none at all.
    """
    position = start
    for last_offset, known in index.entries_after(start):
        if position < known < end and _ends_with(file, known, last_offset):
            yield from _scan_part(file, position, known)
            position = known
    yield from _scan_part(file, position, end)


def _scan_part(file: SegmentFile, start: int, end: int) -> Iterator[ScannedBatch]:
    position = start
    for scanned in scan_headers(file, start, end):
        position = scanned.position + scanned.header.size_in_bytes
        yield scanned
    header = _header_at(file, position) if position + HEADER_SIZE <= end else None
    if header is not None:
        yield ScannedBatch(position, header)


def _header_at(file: SegmentFile, position: int) -> BatchHeader | None:
    header = file.read(position, HEADER_SIZE)
    return parse_header(header) if len(header) == HEADER_SIZE else None


def _ends_with(file: SegmentFile, position: int, last_offset: int) -> bool:
    """Whether a batch with this last offset stands there: a former index may have been left, or be damaged itself."""
    header = _header_at(file, position)
    return header is not None and header.last_offset == last_offset


def is_whole(file: SegmentFile, scanned: ScannedBatch, end: int) -> bool:
    """Whether the batch lies before the position `end` and its checksum is right: so are its length and its delta."""
    size = scanned.header.size_in_bytes
    fits = HEADER_SIZE <= size <= end - scanned.position
    return fits and checksum_of(file, scanned.position, size) == scanned.header.crc


def whole_batch_before(file: SegmentFile, index: OffsetIndex, offset: int, end: int) -> ScannedBatch | None:
    """The last batch that ends before `offset`, by the index and by itself, and that is whole; None without one."""
    for last_offset, position in index.entries_before(offset):
        header = _header_at(file, position) if 0 <= position < end else None
        if header is not None and header.magic == MAGIC and header.last_offset == last_offset:
            scanned = ScannedBatch(position, header)
            if is_whole(file, scanned, end):
                return scanned
    return None


def in_place(
    batches: Iterable[ScannedBatch], base_offset: int, end_position: int, next_offset: int | None = None
) -> Iterator[tuple[ScannedBatch, bool]]:
    """The batches of a segment up to `end_position`, and of each whether it may stand where it does: offsets rise, an
    index can hold them, and one ends where the next begins. The others are damaged, or no batches.

    Where one's offsets reach to where its successor's begin, either may be wrong, and this one is out of place; but a
    successor that begins in what was taken already is the wrong one, and who comes behind it counts instead.
    `next_offset` is where the log goes before them, if they do not begin the segment.
    """
    offset_max = base_offset + INT_MAX
    next_offset = base_offset if next_offset is None else next_offset
    coming = iter(batches)
    scanned, following = next(coming, None), next(coming, None)
    while scanned is not None:
        after = next(coming, None)
        header = scanned.header
        # Not by the header's properties: they cost more than all the rest, a million times in a large segment.
        last_offset = header.base_offset + header.last_offset_delta
        ends_at = scanned.position + header.batch_length + LOG_OVERHEAD
        is_in_place = (
            header.magic == MAGIC
            and next_offset <= header.base_offset <= last_offset <= offset_max
            and scanned.position + HEADER_SIZE <= ends_at
            and (ends_at <= end_position if following is None else ends_at == following.position)
            and last_offset < _where_others_begin(next_offset, following, after)
        )
        if is_in_place:
            next_offset = last_offset + 1
        yield scanned, is_in_place
        scanned, following = following, after


def _where_others_begin(next_offset: int, *successors: ScannedBatch | None) -> int:
    for each in successors:
        if each is not None and each.header.magic == MAGIC and each.header.base_offset >= next_offset:
            return each.header.base_offset
    return LONG_MAX


class GreatestTimestamp:
    """The greatest timestamp of a segment's batches. Retention goes by it: one that is too early deletes too early.

    The time of a batch that is out of place counts where it begins as it should, or its checksum is right, for what is
    damaged may be elsewhere; its offset does not.
    """

    def __init__(self, file: SegmentFile, end: int, timestamp: int, offset: int) -> None:
        """Of the batches up to the position `end`; `timestamp` in ms is known already, and reached at `offset`."""
        self.maximum = timestamp, offset
        """(greatest timestamp in ms, last offset of the first batch that has it, or of the one in place before it)"""
        self._file = file
        self._end = end
        self._offset = offset
        self._next_offset = offset

    def take(self, scanned: ScannedBatch, *, is_in_place: bool) -> None:
        """Count the next one. Raises OSError."""
        header = scanned.header
        counts = is_in_place or header.base_offset == self._next_offset
        if is_in_place:
            self._offset, self._next_offset = header.last_offset, header.next_offset
        if header.max_timestamp > self.maximum[0] and (counts or is_whole(self._file, scanned, self._end)):
            self.maximum = header.max_timestamp, self._offset
