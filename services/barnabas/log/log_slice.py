"""A stretch of whole batches in one segment file, found but not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.segment_file import SegmentFile

if TYPE_CHECKING:
    from barnabas.log.segment import Segment


class LogSlice(NamedTuple):
    """`length` bytes from `position` of `file`.

    The file stays open as long as the slice is held, whatever happens to the segment meanwhile. A truncation may
    make the bytes fewer, never other ones.
    """

    file: SegmentFile
    position: int
    length: int

    def read(self, *, nowait: bool = False) -> bytes:
        """The bytes; with `nowait` raises BlockingIOError rather than wait for the disk."""
        return self.file.read(self.position, self.length, nowait=nowait)


def ends_by(segments: Sequence[Segment], at: int, bound: int) -> bool:
    """Whether the finished segment number `at` holds no offset from `bound` on."""
    return at + 1 < len(segments) and segments[at + 1].base_offset <= bound


def slice_of(
    segment: Segment,
    start: int,
    size: int,
    max_bytes: int,
    bound: int,
    is_whole: bool,
    min_one_batch: bool,
    nowait: bool,
) -> LogSlice | None:
    """From `start` to the segment's end (`is_whole`), the bound or `max_bytes`, whichever comes first."""
    end = size if is_whole else min(segment.position_of(bound, nowait=nowait), size)
    if end <= start:
        return None
    if start + max_bytes < end:
        end, next_offset = segment.boundary_not_after(start, start + max_bytes, nowait=nowait)
        if end - start > max_bytes and not min_one_batch:
            return None
        if end == start:
            return None
    else:
        next_offset = bound
    if next_offset is not None:
        segment.remember(next_offset, end)
    return LogSlice(segment.open().file, start, end - start)
