"""Time as an argument: services pass the system's clock, tests one that stands still.

Two times run in a service. What a *setting* measures and a user can see (retention, sessions of group members, expiry,
timestamps) is the clock's: a test may move it. What waits for a *peer* (deadlines of calls, leases, the sessions of our
services) is the event loop's (`asyncio.timeout`, `loop.time()`), because the peer's answer takes real time. In a
simulation both are the same virtual time.

What decides by how this machine itself does (a disk that is slow, an event loop that is held up) goes by neither, but
by `machine_seconds`. `perf_counter` is left for what is only measured.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final, Protocol

machine_seconds: Final = time.perf_counter
"""Seconds from an arbitrary start, as this machine lives through them: nobody moves them. `tests/test_tidy.py` has who
decides by them, and why.
"""

Listener = Callable[[float], None]
"""Called with the seconds by which a clock jumped."""


class Clock(Protocol):
    """Wall time for what users see and monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Rest between two looks at what time decides: until `seconds` of this clock have passed, or it jumped."""
        ...

    def on_jump(self, listener: Listener) -> None:
        """Call `listener` after each jump forward, before those who sleep are woken."""
        ...


class SystemClock:
    """The machine's own clocks; they never jump."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def on_jump(self, listener: Listener) -> None:
        pass


class ManualClock:
    """A clock that moves only when told to, for tests and simulation.

    Owner of those who sleep: each is woken at its own time.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._numbers), woken))
        await woken

    def on_jump(self, listener: Listener) -> None:
        """It has no jumps: who waits for a time wakes when it comes."""

    def advance(self, milliseconds: int) -> None:
        """Move both clocks forward by `milliseconds`."""
        assert milliseconds >= 0, "a clock does not go back"
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            wake(heapq.heappop(self._sleepers)[2])


def wake(sleeper: asyncio.Future[None]) -> None:
    """End a sleep, unless it has ended already."""
    if not sleeper.done():
        sleeper.set_result(None)
