"""`.timeindex`: timestamp in ms (int64) and relative offset (int32).

An entry (t, o) says: no record of this segment up to offset o is later than t, and the batch that ends at o is the
first to reach t. It is added together with an offset index entry when the greatest timestamp has grown, and once
more when the segment rolls or closes, so the last entry of a finished segment is its greatest timestamp.
"""

from __future__ import annotations

import struct

from barnabas.log.segments.index_file import IndexFile
from barnabas.records.batch import NO_TIMESTAMP


class TimeIndex(IndexFile):
    """Finds the offset from which to look for a timestamp."""

    __slots__ = ()

    entry = struct.Struct(">qi")
    suffix = ".timeindex"

    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that a roll adds."""
        return len(self) >= self.entries_max - 1

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the greatest timestamp is known already."""
        last_timestamp, last_offset = self.last()
        if timestamp > last_timestamp and (not self.entries or offset >= last_offset):
            self.entries += self.entry.pack(timestamp, offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) for an empty index."""
        if not self.entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._at(len(self) - 1)
        return timestamp, self.base_offset + relative

    def offset_for(self, timestamp: int) -> int:
        """The offset of the last entry that is not later than `timestamp`; the base offset if there is none."""
        count = self._count_not_after(timestamp, 0)
        return self.base_offset + (self._at(count - 1)[1] if count else 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries with an offset at or after `offset`."""
        self._keep(self._count_not_after(offset - self.base_offset - 1, 1))

    def is_sane(self) -> bool:
        """Whether the last entry is not before the first and lies in this segment."""
        if not self.entries:
            return True
        first, last = self._at(0), self._at(len(self) - 1)
        return first[0] <= last[0] and 0 <= first[1] <= last[1]
