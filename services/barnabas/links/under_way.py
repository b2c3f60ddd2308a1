"""How much of a service is under way, for whoever stops it."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class UnderWay:
    """Owner of how many calls, or streams, of a service have begun and are not over: each is a `with` block."""

    def __init__(self) -> None:
        self._count = 0
        self._is_none = asyncio.Event()
        self._is_none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._is_none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._is_none.set()

    async def wait_until_none(self, seconds_max: float | None) -> None:
        """Return when nothing is under way any more, or after so long; at once for None."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max or 0):
                await self._is_none.wait()
