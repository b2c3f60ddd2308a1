"""Who may bring the rest of its frame while the gateway holds too many bytes: one connection at a time.

Bytes of a frame that has not come whole are given back only once the rest of it has come. If all who are in the middle
of one waited, the gateway could never drain; if none did, each could fill it with a whole frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from barnabas.gateway import limits


class MidFrame(Protocol):
    """A connection in the middle of a frame."""

    @property
    def partial_bytes(self) -> int:
        """What has come of the frame."""

    @property
    def is_idle(self) -> bool:
        """Whether it could go on, but for its client."""

    def budget_has_room(self) -> None:
        """It may be its turn."""

    def give_up_mid_frame(self) -> None:
        """Close it: it leaves the line, and what has come of its frame is given back."""


class MidFrameLine:
    """Owns the line of connections that wait to bring the rest of a frame: the first is read, those behind it are not.

    It leaves when its frame is whole. One that brings less than MID_FRAME_TURN_BYTES_MIN in MID_FRAME_TURN_SECONDS
    while others wait goes to the end, so that no client keeps the others by going silent in the middle of a frame;
    where far too many bytes wait already it is closed.
    """

    def __init__(self, are_far_too_many: Callable[[], bool]) -> None:
        """`are_far_too_many` says whether the bytes that wait have gone beyond what turns alone may keep."""
        self._are_far_too_many = are_far_too_many
        self._line: dict[MidFrame, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def is_first(self, connection: MidFrame) -> bool:
        """Whether it may go on; it stands in line from now on if it did not."""
        if connection not in self._line:
            self._line[connection] = None
            if self._timer is None and len(self._line) > 1:
                self._start_turn()
        return next(iter(self._line)) is connection

    def leave(self, connection: MidFrame) -> None:
        """Its frame is whole, or it has ended; it need not be in the line."""
        if connection not in self._line:
            return
        was_first = next(iter(self._line)) is connection
        del self._line[connection]
        if was_first:
            self._end_turn()

    def _start_turn(self) -> None:
        first = next(iter(self._line))
        self._timer = asyncio.get_running_loop().call_later(
            limits.MID_FRAME_TURN_SECONDS, self._look, first, first.partial_bytes
        )

    def _look(self, first: MidFrame, had_bytes: int) -> None:
        """A turn is over: it is followed by another of the same connection if that has brought enough."""
        if first.partial_bytes - had_bytes >= limits.MID_FRAME_TURN_BYTES_MIN:
            self._start_turn()
            return
        if first.is_idle and self._are_far_too_many():
            first.give_up_mid_frame()
            return
        del self._line[first]
        self._line[first] = None
        self._end_turn()
        first.budget_has_room()  # it is not its turn any more

    def _end_turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            if len(self._line) > 1:
                self._start_turn()
            next(iter(self._line)).budget_has_room()
