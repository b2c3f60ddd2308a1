"""How many bytes of answers wait in the gateway for clients that do not take them.

What the kernel does not take of an answer stays here until its client reads. Many clients that ask and do not read
would fill the memory. So these bytes count for the gateway's budget, and have a part of it (`answer_share_bytes`): the
fuller that is, the less a Fetch is answered with; where it is full, nothing more is read for clients until somebody has
taken his answer, and who does not take it while others wait is closed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, Protocol

from barnabas.gateway import limits

_NO_LIMIT: Final = sys.maxsize


def answer_share_bytes(budget_bytes: int) -> int:
    """What of a budget of `budget_bytes` (0 or less: no limit) answers may take that clients do not read."""
    return 0 if budget_bytes <= 0 else max(1, budget_bytes // limits.ANSWERS_ONE_PART_IN)


class Reader(Protocol):
    """A connection whose client has not taken all of its answers."""

    @property
    def unsent_bytes(self) -> int:
        """What the socket has not taken yet."""

    def give_up_unread(self) -> None:
        """Close it at once, with what it holds."""


class _Held:
    """What is known of one reader."""

    __slots__ = ("held_bytes", "left_bytes", "since")

    def __init__(self, held_bytes: int, since: float) -> None:
        self.held_bytes = held_bytes
        """What it holds in memory: whole pieces, until the last byte of them has left."""
        self.left_bytes = held_bytes
        """What the socket had not taken at `since`, in seconds of the event loop."""
        self.since = since


class UnreadAnswers:
    """Owns the count of bytes of answers that clients have not taken, and knows whose they are.

    A read for clients asks `fetch_bytes_max` how much it may be, and waits for room where there is none (`is_full`,
    `wait_for_room`): it is the `AnswerRoom` of the links to storage nodes.
    """

    def __init__(self, bytes_max: int = 0) -> None:
        """0 is no limit."""
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._coming_bytes = 0
        self._came_bytes = 0
        """Read in this turn of the event loop, and in the one before: soon written, or counted as unread."""
        self._readers: dict[Reader, _Held] = {}
        """In the order in which they were last seen to take something."""
        self._room = asyncio.Event()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read for clients now."""
        return 0 < self.bytes_max <= self.used_bytes + self._coming_bytes + self._came_bytes

    @property
    def _is_exceeded(self) -> bool:
        return 0 < self.bytes_max < self.used_bytes

    def fetch_bytes_max(self) -> int:
        """What a Fetch may be answered with now, beyond its first batch; 0 where there is no room."""
        if not self.bytes_max:
            return _NO_LIMIT
        room = self.bytes_max - self.used_bytes - self._coming_bytes - self._came_bytes
        return max(room // limits.FETCH_ONE_PART_IN, limits.FETCH_BYTES_MIN) if room > 0 else 0

    # --- what is held

    def take(self, size_bytes: int, reader: Reader | None = None) -> None:
        """So many bytes more are held, by the `reader` that does not take them or by a request under way."""
        self.used_bytes += size_bytes
        if reader is not None:
            self._readers[reader] = _Held(size_bytes, asyncio.get_running_loop().time())
            if self._timer is None and self._is_exceeded:
                self._close_who_stands_still()

    def give_back(self, size_bytes: int, reader: Reader | None = None) -> None:
        """They are held no longer."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        self._readers.pop(reader, None)  # type: ignore[arg-type]  # nobody is no reader
        self._has_less()

    def on_read(self, size_bytes: int) -> None:
        """So much was read for a client: its connection writes or counts it within the next two turns of the loop."""
        if size_bytes and self.bytes_max:
            if not self._coming_bytes + self._came_bytes:
                asyncio.get_running_loop().call_soon(self._pass_on)
            self._coming_bytes += size_bytes

    def _pass_on(self) -> None:
        self._came_bytes, self._coming_bytes = self._coming_bytes, 0
        if self._came_bytes:
            asyncio.get_running_loop().call_soon(self._pass_on)
        self._has_less()

    # --- waiting for room

    async def wait_for_room(self) -> None:
        """Return once something may be read for clients."""
        while self.is_full:
            self._room.clear()
            self._waiting += 1
            try:
                self._close_who_stands_still()
                await self._room.wait()
            finally:
                self._waiting -= 1

    def _has_less(self) -> None:
        if self._waiting and not self.is_full:
            self._room.set()

    def _close_who_stands_still(self) -> None:
        """Somebody waits, or more is held than there is room for, as by answers that are none to a Fetch: whoever took
        next to nothing for UNREAD_SECONDS_MAX makes room, the longest silent first.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._is_exceeded or (self._waiting and self.is_full)):
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        still_held = self.used_bytes
        for reader, held in list(self._readers.items()):
            silent_seconds = now - held.since
            if still_held < self.bytes_max or silent_seconds < limits.UNREAD_SECONDS_MAX:
                break
            del self._readers[reader]
            unsent_bytes = reader.unsent_bytes
            if held.left_bytes - unsent_bytes >= silent_seconds * limits.READ_BYTES_PER_SECOND_MIN:
                held.left_bytes, held.since = unsent_bytes, now
                self._readers[reader] = held
            else:
                still_held -= held.held_bytes
                reader.give_up_unread()
        self._timer = loop.call_later(limits.UNREAD_SECONDS_MAX / 4, self._close_who_stands_still)
