"""How many bytes of a log its readers do not see yet: those between its high watermark and its end."""

from __future__ import annotations

from collections import deque

from barnabas.storage import limits


class UnseenBytes:
    """Owner of the sizes of one log's appends above the high watermark."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int, int]] = deque()
        """(log end offset before the append and after it, its bytes), rising."""

    def add(self, start_offset: int, end_offset: int, size_bytes: int) -> None:
        """`size_bytes` were appended between these offsets."""
        pieces = self._pieces
        if len(pieces) >= limits.UNSEEN_PIECES_MAX:
            start_offset, _, more_bytes = pieces.pop()
            size_bytes += more_bytes
        pieces.append((start_offset, end_offset, size_bytes))

    def cut(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`."""
        pieces = self._pieces
        while pieces and pieces[-1][0] >= end_offset:
            pieces.pop()
        if pieces and pieces[-1][1] > end_offset:
            start_offset, _, size_bytes = pieces.pop()
            pieces.append((start_offset, end_offset, size_bytes))

    def take(self, high_watermark: int) -> int:
        """How many bytes readers come to see now that the high watermark has moved so far.

        Of an append that they see in part, all bytes, and again when they see more of it: too many only have a fetch
        read in vain, for too few it would go on waiting for what is there.
        """
        pieces = self._pieces
        size_bytes = 0
        while pieces and pieces[0][1] <= high_watermark:
            size_bytes += pieces.popleft()[2]
        if pieces and pieces[0][0] < high_watermark:
            size_bytes += pieces[0][2]
        return size_bytes
