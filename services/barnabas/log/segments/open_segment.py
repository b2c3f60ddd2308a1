"""A segment in use: its file and its indexes, and what of them is found or built by the file's batches alone."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import ScannedBatch
from barnabas.log.segments.scan_past_damage import (
    GreatestTimestamp,
    in_place,
    is_whole,
    scan_past_damage,
    whole_batch_before,
)
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
    is_early: bool = False
    """Whether more goes than was asked for, since a batch is damaged."""

    @classmethod
    def behind(cls, scanned: ScannedBatch) -> Cut:
        """Right behind this batch."""
        return cls(scanned.position + scanned.header.size_in_bytes, scanned.header.next_offset)


class OpenSegment:
    """Descriptor and indexes of a segment in use. Dropped as one; whoever still holds it may go on reading."""

    __slots__ = ("file", "offset_index", "time_index")

    def __init__(self, file: SegmentFile, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index

    @property
    def are_indexes_written(self) -> bool:
        """Whether its indexes' files have what they have in memory."""
        return self.offset_index.is_written and self.time_index.is_written

    def forget_index_files(self) -> None:
        """What its indexes' files hold is not known: the next flush writes all entries."""
        self.offset_index.forget_file()
        self.time_index.forget_file()

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

        Where the file has more than those, its tail was damaged, and what was in there is missing: the log goes on
        right behind what is left, not at `offset`. What is out of place right before the cut, or comes right behind
        such, may be what is to go, or hide it: then the cut comes before that, and the log goes on from there. So it
        does before a last batch that is not whole, for nobody knows where it ends. Raises OSError.
        """
        base_offset = self.offset_index.base_offset
        last = whole_batch_before(self.file, self.offset_index, offset, size)
        kept = Cut(0, base_offset) if last is None else Cut.behind(last)
        # `kept` is behind all that may stay; `certain` behind the last that follows right on another in place.
        certain = kept
        batches = scan_past_damage(self.file, self.offset_index, kept.position, size)
        for scanned, is_in_place in in_place(batches, base_offset, size, kept.next_offset):
            if not is_in_place:
                continue
            follows = scanned.position == kept.position
            if scanned.header.last_offset >= offset:
                if follows and certain is kept and self._is_whole(last, size):
                    return Cut(kept.position, min(offset, scanned.header.base_offset))
                break
            kept = Cut.behind(scanned)
            if follows:
                certain, last = kept, scanned
        else:
            ends = kept.position == size == self.file.size()
            if ends and certain is kept and self._is_whole(last, size):
                return Cut(size, offset)
        if last is not None and not self._is_whole(last, size):
            certain = Cut(last.position, last.header.base_offset)
        return certain._replace(is_early=certain.next_offset < offset)

    def _is_whole(self, last: ScannedBatch | None, size: int) -> bool:
        return last is None or is_whole(self.file, last, size)

    def cut_indexes(self, offset: int, size: int) -> Indexed:
        """Drop what the indexes say of batches from `offset` on, of which none stands in the first `size` bytes."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        last_position = self.offset_index.last_position()
        greatest = GreatestTimestamp(self.file, size, *self.time_index.last())
        batches = scan_past_damage(self.file, self.offset_index, last_position, size)
        for scanned, is_in_place in in_place(batches, self.offset_index.base_offset, size):
            greatest.take(scanned, is_in_place=is_in_place)
        return Indexed(greatest.maximum, last_position)
