"""The server's end of a coalesced stream: results leave together, bounded by bytes.

`AnswerQueue` collects results while the previous frame is being written. Its `wait_for_room` is the backpressure: a
servicer awaits it before it takes the next request from the peer. A peer that takes nothing for
STALLED_WRITE_SECONDS_MAX is given up (`PeerStalled`): nothing is kept for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

from barnabas.links.stream_counts import StreamCounts
from barnabas.rpc import limits

ResultT = TypeVar("ResultT")


class PeerStalled(Exception):
    """The peer takes no answers: it is frozen, or cut off."""


class AnswerQueue(Generic[ResultT]):
    """Owns the results of one stream that are not written yet."""

    def __init__(
        self,
        make_frame: Callable[[Sequence[ResultT]], Any],
        *,
        bytes_max: int,
        counts: StreamCounts | None = None,
    ) -> None:
        self._counts = StreamCounts() if counts is None else counts
        self._make_frame = make_frame
        self._bytes_max = bytes_max
        self._results: deque[tuple[ResultT, int]] = deque()
        self._queued_bytes = 0
        self._writing_since: float | None = None
        """When the write that is under way began, by the event loop's time; None while there is none."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._all_written = asyncio.Event()
        self._all_written.set()

    def put(self, result: ResultT, size_bytes: int = 0) -> None:
        """Queue a result of about `size_bytes`."""
        self._results.append((result, size_bytes))
        self._queued_bytes += size_bytes
        if self._queued_bytes > self._bytes_max:
            self._room.clear()
        self._all_written.clear()
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Return once less than the limit waits to be written."""
        await self._room.wait()

    async def wait_until_written(self) -> None:
        """Return once nothing waits to be written, or is being written."""
        await self._all_written.wait()

    async def write_forever(self, write: Callable[[Any], Awaitable[None]]) -> None:
        """Write frames with `write` until cancelled. Raises a group with what `write` raised, or with PeerStalled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_frames(write))
            tasks.create_task(self._watch_writes())

    async def _write_frames(self, write: Callable[[Any], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._results:
                frame = self._next_frame()
                self._writing_since, started = loop.time(), perf_counter()
                await write(frame)
                self._writing_since = None
                self._counts.write_wait_seconds += perf_counter() - started
                del frame  # large, and the next may be long in coming
            self._all_written.set()

    async def _watch_writes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(limits.STALLED_WRITE_SECONDS_MAX / 8)
            since = self._writing_since
            if since is not None and loop.time() - since > limits.STALLED_WRITE_SECONDS_MAX:
                raise PeerStalled("the peer takes no answers")

    def _next_frame(self) -> Any:
        results: list[ResultT] = []
        frame_bytes = 0
        while (
            self._results
            and len(results) < limits.FRAME_ITEMS_MAX
            and (not results or frame_bytes + self._results[0][1] <= limits.FRAME_BYTES_TARGET)
        ):
            result, size_bytes = self._results.popleft()
            results.append(result)
            frame_bytes += size_bytes
        self._queued_bytes -= frame_bytes
        self._counts.sent.count(results)
        if self._queued_bytes <= self._bytes_max:
            self._room.set()
        return self._make_frame(results)
