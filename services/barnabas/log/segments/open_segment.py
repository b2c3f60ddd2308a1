"""A segment in use: its file and its indexes, and what of them is found or built by the file's batches alone."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import ScannedBatch, scan_headers
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
        greatest = GreatestTimestamp(self.file, NO_TIMESTAMP, base_offset)
        for scanned, is_in_place in in_place(scan_past_damage(self.file, former, 0, size), base_offset):
            greatest.take(scanned, is_in_place=is_in_place)
            if is_in_place and scanned.position - indexed > index_interval_bytes:
                self.offset_index.append(scanned.header.last_offset, scanned.position)
                self.time_index.append_if_later(*greatest.maximum)
                indexed = scanned.position
        if greatest.maximum[0] >= 0:
            self.time_index.append_if_later(*greatest.maximum)
        return Indexed(greatest.maximum, indexed)

    def find_in_place(self, offset: int, size: int) -> ScannedBatch | None:
        """The first batch of `size` bytes that ends at or after `offset`, without one whose offset is damaged.
        None when they end before it.
        """
        batches = scan_headers(self.file, self.offset_index.position_for(offset), size)
        for scanned, is_in_place in in_place(batches, self.offset_index.base_offset):
            if is_in_place and scanned.header.last_offset >= offset:
                return scanned
        return None

    def cut_indexes(self, offset: int, size: int) -> Indexed:
        """Drop what the indexes say of batches from `offset` on, of which none stands in the first `size` bytes."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        last_position = self.offset_index.last_position()
        greatest = GreatestTimestamp(self.file, *self.time_index.last())
        batches = scan_headers(self.file, last_position, size)
        for scanned, is_in_place in in_place(batches, self.offset_index.base_offset):
            greatest.take(scanned, is_in_place=is_in_place and scanned.header.last_offset < offset)
        return Indexed(greatest.maximum, last_position)
