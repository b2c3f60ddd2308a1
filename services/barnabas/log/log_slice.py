"""A stretch of whole batches in one segment file, found but not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from barnabas.log.segments.segment_file import SegmentFile

if TYPE_CHECKING:
    from barnabas.log.segments.segment import Segment


class Truncations:
    """How often a log was truncated: counted before its files change, so that whoever finds the same number after
    a read as before has read what was there before.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class LogSlice(NamedTuple):
    """`length` bytes from `position` of `file`, in a log truncated `generation` times.

    The file stays open as long as the slice is held, whatever happens to the segment meanwhile. After a truncation
    other batches may stand there, so that a slice found before it reads as nothing.
    """

    file: SegmentFile
    position: int
    length: int
    truncations: Truncations
    generation: int
    end_offset: int
    """All offsets in it are before this one, which may be a later one than need be."""

    @overload
    def read(self, *, nowait: Literal[False] = False) -> bytes: ...
    @overload
    def read(self, *, nowait: bool) -> bytes | memoryview: ...
    def read(self, *, nowait: bool = False) -> bytes | memoryview:
        """The bytes, or none when the log was truncated since; with `nowait` raises BlockingIOError rather than
        wait for the disk.
        """
        data = self.file.read(self.position, self.length, nowait=nowait)
        return data if self.truncations.count == self.generation else b""


def ends_by(segments: Sequence[Segment], at: int, bound: int) -> bool:
    """Whether the finished segment number `at` holds no offset from `bound` on."""
    return at + 1 < len(segments) and segments[at + 1].base_offset <= bound


def stretch_of(
    segment: Segment,
    start: int,
    size: int,
    max_bytes: int,
    bound: int,
    is_whole: bool,
    min_one_batch: bool,
    nowait: bool,
) -> tuple[int, int | None]:
    """(length, the offset after it if known) from `start` to the segment's end (`is_whole`), the bound or
    `max_bytes`, whichever comes first; length 0 when no batch fits.
    """
    end = size if is_whole else min(segment.position_of(bound, nowait=nowait), size)
    if end <= start:
        return 0, None
    next_offset: int | None = bound
    if start + max_bytes < end:
        end, next_offset = segment.boundary_not_after(start, start + max_bytes, nowait=nowait)
        if end - start > max_bytes and not min_one_batch:
            return 0, None
    return end - start, next_offset
