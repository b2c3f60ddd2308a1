"""A segment in use: its file and its indexes, and what of them is found or built by the file's batches alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import ScannedBatch
from barnabas.log.segments.scan_past_damage import GreatestTimestamp, in_place, scan_past_damage
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.log.segments.time_index import TimeIndex
from barnabas.records.batch import NO_TIMESTAMP


class Indexed(NamedTuple):
    """What is known of a segment whose batches were walked over."""

    maximum: tuple[int, int]
    """(greatest timestamp in ms, an offset at which it is reached), as `Segment.maximum`"""
    last_position: int
    """The position of the batch of the last index entry; 0 without one."""


class Cut(NamedTuple):
    """Where a segment is cut."""

    position: int
    next_offset: int
    """The offset with which the log goes on."""


class OpenSegment:
    """Descriptor and indexes of a segment in use. Dropped as one; whoever still holds it may go on reading."""

    __slots__ = ("file", "offset_index", "time_index")

    def __init__(self, file: SegmentFile, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index

    def build_indexes(self, former: OffsetIndex, size: int, index_interval_bytes: int) -> Indexed:
        """Index the first `size` bytes of the file. Raises OSError.

        Of `former` counts where it has a batch: behind a damaged one nothing else knows.
        """
        self.offset_index.clear()
        self.time_index.clear()
        base_offset, indexed = self.offset_index.base_offset, 0
        greatest = GreatestTimestamp(self.file, size, NO_TIMESTAMP, base_offset)
        for scanned, is_in_place in in_place(scan_past_damage(self.file, former, 0, size), base_offset, size):
            greatest.take(scanned, is_in_place=is_in_place)
            if is_in_place and scanned.position - indexed > index_interval_bytes:
                self.offset_index.append(scanned.header.last_offset, scanned.position)
                self.time_index.append_if_later(*greatest.maximum)
                indexed = scanned.position
        if greatest.maximum[0] >= 0:
            self.time_index.append_if_later(*greatest.maximum)
        return Indexed(greatest.maximum, indexed)

    def find_cut(self, offset: int, size: int) -> Cut:
        """Where to cut the first `size` bytes so that nothing stays from `offset` on; their end where nothing is there.

        What is out of place right before the cut may be what is to go, or hide it: then the cut comes before that, and
        the log goes on behind the last batch in place. Raises OSError.
        """
        start, base_offset = self.offset_index.position_for(offset - 1), self.offset_index.base_offset
        found = self._find_cut(start, None, offset, size) if start else None
        # Where the walk began with one that is out of place, only a walk from the beginning knows what comes before it.
        return found or self._find_cut(0, base_offset, offset, size) or Cut(0, base_offset)

    def _find_cut(self, start: int, next_offset: int | None, offset: int, size: int) -> Cut | None:
        """The same by the batches from the position `start` on, before which the log goes to `next_offset`; None where
        that matters and is not known.
        """
        position = start
        for scanned, is_in_place in self._in_place(start, size):
            header = scanned.header
            if not is_in_place:
                continue
            if header.last_offset >= offset:
                if position == scanned.position:
                    return Cut(scanned.position, min(offset, header.base_offset))
                break
            position, next_offset = scanned.position + header.size_in_bytes, header.next_offset
        else:
            if position == size:
                return Cut(size, offset)
        return None if next_offset is None else Cut(position, next_offset)

    def cut_indexes(self, offset: int, size: int) -> Indexed:
        """Drop what the indexes say of batches from `offset` on, of which none stands in the first `size` bytes."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        last_position = self.offset_index.last_position()
        greatest = GreatestTimestamp(self.file, size, *self.time_index.last())
        for scanned, is_in_place in self._in_place(last_position, size):
            greatest.take(scanned, is_in_place=is_in_place and scanned.header.last_offset < offset)
        return Indexed(greatest.maximum, last_position)

    def _in_place(self, start: int, size: int) -> Iterator[tuple[ScannedBatch, bool]]:
        batches = scan_past_damage(self.file, self.offset_index, start, size)
        return in_place(batches, self.offset_index.base_offset, size)
