"""How many bytes of a log its readers do not see yet: those between its high watermark and its end."""

from __future__ import annotations

from collections import deque
from typing import Final

PIECES_MAX: Final = 1_000
"""Appends of one partition that are told apart; beyond that the newest count as one."""


class UnseenBytes:
    """Owner of the sizes of one log's appends above the high watermark."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int]] = deque()
        """(log end offset after the append, its bytes), rising."""

    def add(self, end_offset: int, size_bytes: int) -> None:
        """The log ends at `end_offset`, `size_bytes` later than before."""
        pieces = self._pieces
        if len(pieces) >= PIECES_MAX:
            size_bytes += pieces.pop()[1]
        pieces.append((end_offset, size_bytes))

    def take(self, high_watermark: int) -> int:
        """How many bytes readers come to see now that the high watermark has moved so far; at least one.

        Of appends that count as one, they are counted once all of them are below it.
        """
        pieces = self._pieces
        size_bytes = 0
        while pieces and pieces[0][0] <= high_watermark:
            size_bytes += pieces.popleft()[1]
        return size_bytes or 1
