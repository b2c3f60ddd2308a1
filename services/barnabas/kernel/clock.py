"""Time as an argument: services pass the system's clock, tests one that stands still."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what users see and monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to, for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, milliseconds: int) -> None:
        """Move both clocks forward by `milliseconds`."""
        assert milliseconds >= 0, "a clock does not go back"
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000
