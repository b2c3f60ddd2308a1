"""How partitions that are being loaded share the event loop with all else in the process.

A coordinator that starts, or takes over from one that ended, loads dozens of partitions at a time, and each of them has
records to replay as soon as it is its turn. If each went on until it had replayed its share, the loop would turn once
for the shares of all: for seconds, in which the process sends no heartbeat, and a broker is given up with its node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from barnabas.coordinator import limits


class ReplayTurns:
    """Owner of whose turn it is to replay, and of how much was replayed since the event loop had its own."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._records = 0
        self._bytes = 0
        self._is_counting = False

    async def replay(self, steps: Iterator[int]) -> None:
        """Take all `steps`, a record each; each says how many bytes were read for it. Others get their turns."""
        is_over = True
        while is_over:
            async with self._turn:
                is_over = self._replay_some(steps)
                if is_over:
                    await asyncio.sleep(0)

    def _replay_some(self, steps: Iterator[int]) -> bool:
        """Whether it is over because the loop is to have its turn."""
        for size_bytes in steps:
            self._records += 1
            self._bytes += size_bytes
            if not self._is_counting:
                self._is_counting = True
                asyncio.get_running_loop().call_soon(self._on_turn_of_loop)
            if self._records >= limits.LOAD_YIELD_RECORDS or self._bytes >= limits.LOAD_YIELD_BYTES:
                return True
        return False

    def _on_turn_of_loop(self) -> None:
        self._records = self._bytes = 0
        self._is_counting = False
