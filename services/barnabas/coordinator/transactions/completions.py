"""Who waits until a transaction is complete: its producer's next one often comes before all markers have landed."""

from __future__ import annotations

import asyncio
import contextlib


class Completions:
    """Owns the calls that wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """By transactional id."""

    async def wait(self, transactional_id: str, seconds: float) -> None:
        """Return once the transaction of that id is complete, or after so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, {})
        waiting[future] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await future
        finally:
            del waiting[future]
            if not waiting and self._waiting.get(transactional_id) is waiting:
                del self._waiting[transactional_id]

    def on_complete(self, transactional_id: str) -> None:
        """Its completion is decided: what is decided from now on comes behind it."""
        for future in self._waiting.get(transactional_id, ()):
            if not future.done():
                future.set_result(None)
