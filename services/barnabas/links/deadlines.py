"""Deadlines of many requests under one timer: noticed up to TICK_SECONDS late, and costing a request next to nothing.

A timer for each request would cost more than the rest of a small request's way through a stream, and nearly all of
them would be cancelled. Here a request's key goes into the bucket of its tick and is taken out again when the answer
comes; one timer looks at the buckets whose tick is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

TICK_SECONDS: Final = 0.1
"""How late a deadline may be noticed."""


class Deadlines:
    """Owns the keys that have a deadline; `on_passed` is given those whose time is over, and may add new ones."""

    def __init__(self, on_passed: Callable[[Sequence[int]], None]) -> None:
        self._on_passed = on_passed
        self._buckets: dict[int, dict[int, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, key: int, seconds: float) -> int:
        """`key` has so many seconds from now; returns its tick, which `discard` asks for."""
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + seconds) / TICK_SECONDS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = {key: None}
            if self._timer is None:
                self._timer = loop.call_later(TICK_SECONDS, self._look)
        else:
            bucket[key] = None
        return tick

    def discard(self, key: int, tick: int) -> None:
        """`key` has no deadline any more; one that is not known is no error."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[tick]

    def clear(self) -> None:
        """Nothing has a deadline any more."""
        self._buckets.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = int(loop.time() / TICK_SECONDS)
        passed = [key for tick in sorted(self._buckets) if tick <= now for key in self._buckets.pop(tick)]
        if passed:
            self._on_passed(passed)
        if self._buckets and self._timer is None:
            self._timer = loop.call_later(TICK_SECONDS, self._look)
