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

    @property
    def silent_seconds(self) -> float:
        """How long nothing has come of it, whether it was read or not."""

    def budget_has_room(self) -> None:
        """It may be its turn."""

    def give_up_mid_frame(self) -> None:
        """Close it: it leaves the line, and what has come of its frame is given back."""


class MidFrameLine:
    """Owns the line of connections in the middle of a large frame: while too many bytes wait the first is read, and
    those behind it are not once they have brought something.

    It leaves when its frame is whole. One that brings less than MID_FRAME_TURN_BYTES_MIN in MID_FRAME_TURN_SECONDS
    while others wait goes to the end: its client sends on meanwhile, as far as the kernel takes it. So whose turn
    brings nothing at all has gone silent: after MID_FRAME_SILENT_SECONDS it is closed, so that clients which stop in
    the middle of a frame do not each cost all others a turn, again and again. Where far too many bytes wait already,
    whoever loses its turn is closed.
    """

    def __init__(self, is_needed: Callable[[], bool], are_far_too_many: Callable[[], bool]) -> None:
        """`is_needed` says whether too many bytes wait, `are_far_too_many` whether more than turns alone may keep."""
        self._is_needed = is_needed
        self._are_far_too_many = are_far_too_many
        self._line: dict[MidFrame, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, connection: MidFrame) -> None:
        """It is in the middle of a large frame; it need not be new in the line."""
        self._line[connection] = None

    def is_first(self, connection: MidFrame) -> bool:
        """Whether it may go on while too many bytes wait; it stands in line from now on if it did not."""
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

    def _start_turn(self, *, is_last: bool = False) -> None:
        first = next(iter(self._line))
        self._timer = asyncio.get_running_loop().call_later(
            limits.MID_FRAME_TURN_SECONDS, self._look, first, first.partial_bytes, is_last
        )

    def _look(self, first: MidFrame, had_bytes: int, is_last: bool) -> None:
        """A turn is over: it is followed by another of the same connection if that has brought enough.

        Before one is closed as silent it has one more turn (`is_last`): the event loop may have been too busy in this
        one to read it.
        """
        if len(self._line) == 1 or not self._is_needed():
            self._timer = None  # nobody waits for another
            return
        brought = first.partial_bytes - had_bytes
        if brought >= limits.MID_FRAME_TURN_BYTES_MIN:
            self._start_turn()
            return
        is_silent = not brought and first.silent_seconds >= limits.MID_FRAME_SILENT_SECONDS
        if first.is_idle and is_silent and not is_last:
            self._start_turn(is_last=True)
            return
        if first.is_idle and (is_silent or self._are_far_too_many()):
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
        if self._line and self._is_needed():
            if len(self._line) > 1:
                self._start_turn()
            next(iter(self._line)).budget_has_room()
