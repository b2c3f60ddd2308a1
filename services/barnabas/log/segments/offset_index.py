"""`.index`: relative offset (int32) and file position (int32), one entry for every `index.interval.bytes` of log.

The offset of an entry is the last offset of the batch at that position, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from barnabas.log.segments.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Finds the position from which to look for an offset."""

    __slots__ = ()

    entry = struct.Struct(">ii")
    suffix = ".index"

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at `position` that ends with `last_offset`; both rise from entry to entry."""
        self.entries += self.entry.pack(last_offset - self.base_offset, position)

    def position_for(self, offset: int) -> int:
        """Position of a batch whose last offset is the greatest known one that is at most `offset`; 0 if none."""
        return self._position(self._count_not_after(offset - self.base_offset, 0))

    def position_not_after(self, position: int) -> int:
        """The greatest batch position known that is at most `position`; 0 if none."""
        return self._position(self._count_not_after(position, 1))

    def entries_after(self, position: int) -> Iterator[tuple[int, int]]:
        """(last offset, position) of the batches known behind `position`."""
        for number in range(self._count_not_after(position, 1), len(self)):
            relative, known = self._at(number)
            yield self.base_offset + relative, known

    def entries_before(self, offset: int) -> Iterator[tuple[int, int]]:
        """(last offset, position) of the batches known that end before `offset`, the last one first."""
        for number in reversed(range(self._count_not_after(offset - 1 - self.base_offset, 0))):
            relative, known = self._at(number)
            yield self.base_offset + relative, known

    def last_position(self) -> int:
        """Position of the last entry's batch; 0 for an empty index."""
        return self._position(len(self))

    def _position(self, count: int) -> int:
        """That of the last of the first `count` entries; 0 of none, and of one that is damaged so that none can be."""
        return max(0, self._at(count - 1)[1]) if count else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        self._keep(self._count_not_after(offset - self.base_offset - 1, 0))

    def is_sane(self, log_size: int) -> bool:
        """Whether the entries rise and stay inside a log of `log_size` bytes, judged by the first and the last."""
        if not self.entries:
            return True
        first, last = self._at(0), self._at(len(self) - 1)
        return 0 <= first[0] <= last[0] and 0 <= first[1] <= last[1] < log_size
