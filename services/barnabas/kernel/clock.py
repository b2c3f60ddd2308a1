"""Time as an argument: services pass the system's clock, tests one that stands still.

Two times run in a service. What a *setting* measures and a user can see (retention, sessions of group members, expiry,
timestamps) is the clock's: a test may move it. What waits for a *peer* (deadlines of calls, leases, the sessions of our
services) is the event loop's (`asyncio.timeout`, `loop.time()`), because the peer's answer takes real time. In a
simulation both are the same virtual time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

Listener = Callable[[float], None]
"""Called with the seconds by which a clock jumped."""


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Take it back; nothing happens when it is over."""
        ...


class Clock(Protocol):
    """Wall time for what users see and monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop once `seconds` of this clock have passed."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` of this clock have passed."""
        ...

    def on_jump(self, listener: Listener) -> None:
        """Call `listener` after each jump forward, before the timers that became due by it."""
        ...


class SystemClock:
    """The machine's own clocks; they never jump."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def on_jump(self, listener: Listener) -> None:
        pass


class ManualClock:
    """A clock that moves only when told to, for tests and simulation.

    Owner of its timers: each is called at its own time, which the clock then shows.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self._monotonic + seconds, next(self._numbers), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def on_jump(self, listener: Listener) -> None:
        """It passes through every moment, so it never jumps."""

    def advance(self, milliseconds: int) -> None:
        """Move both clocks forward by `milliseconds`, from timer to timer."""
        assert milliseconds >= 0, "a clock does not go back"
        end_ms, end = self._now_ms + milliseconds, self._monotonic + milliseconds / 1000
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._now_ms = end_ms - round((end - due) * 1000)
            self._monotonic = max(self._monotonic, due)
            if timer.callback is not None:
                timer.callback()
        self._now_ms, self._monotonic = end_ms, end


class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None
