"""How many large requests are decoded at a time.

A request of a few hundred kilobytes that lists 50,000 partitions takes a hundred megabytes while it is worked on: as
objects, as messages to other services, as rows of its answer. So large requests, by an estimate, have a share of the
gateway's budget together; those for which there is no room wait, as bytes, in the order in which they came. Those that
are not as large only count for the budget; small ones, which are nearly all, do not even come here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget

ResultT = TypeVar("ResultT")

_PRODUCE: Final = 0
_LONG_POLLS: Final = frozenset({1, 11, 14})
"""Fetch, JoinGroup, SyncGroup."""


class TooLong(Exception):
    """The request was given up."""

    def __init__(self) -> None:
        super().__init__("a large request took too long, and others had to wait for the memory that it takes")


def is_small(api_key: int, size_bytes: int) -> bool:
    """Whether a request that takes so much need not be counted."""
    if size_bytes <= limits.DECODED_BYTES_FREE:
        return True
    return api_key in _LONG_POLLS and size_bytes <= limits.DECODED_AT_ONCE_BYTES


def decoded_bytes(api_key: int, frame_bytes: int, items: int) -> int:
    """About what a request of so many items takes while it is worked on, besides its frame."""
    # Records stay bytes; a text with one character beyond the usual takes four times what it takes in the frame.
    texts = 0 if api_key == _PRODUCE else limits.DECODED_TEXT_FACTOR * frame_bytes
    return items * limits.DECODED_ITEM_BYTES + texts


class DecodedRequests:
    """Owns the count of what large requests take, and the order of those that wait for room."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._bytes_max = max(0, budget.bytes_max) // limits.DECODED_ONE_PART_IN
        self.used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._under_way: dict[asyncio.Timeout, float] = {}
        """Each one's limit of time, and when it began by the event loop's time."""

    async def serve(self, size_bytes: int, serve: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """What `serve()` returns, which decodes a request of this size and answers it, once there is room for it.

        A request that is not very large waits for nobody.

        Raises TooLong where that took longer than DECODED_SECONDS_MAX while others waited for room.
        """
        if size_bytes <= limits.DECODED_AT_ONCE_BYTES:
            self._budget.take(size_bytes)
            try:
                return await serve()
            finally:
                self._budget.give_back(size_bytes)
        if not self._has_room(size_bytes) or self._waiting:
            await self._wait(size_bytes)
        else:
            self._take(size_bytes)
        return await self._serve_within_time(size_bytes, serve)

    async def _serve_within_time(self, size_bytes: int, serve: Callable[[], Awaitable[ResultT]]) -> ResultT:
        try:
            async with asyncio.timeout(None) as limit:
                self._under_way[limit] = asyncio.get_running_loop().time()
                self._set_limits()
                try:
                    return await serve()
                finally:
                    del self._under_way[limit]
        except TimeoutError:
            if not limit.expired():
                raise
            raise TooLong from None
        finally:
            self._give_back(size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        # What is larger than all the room goes alone.
        return not self._bytes_max or not self.used_bytes or self.used_bytes + size_bytes <= self._bytes_max

    def _take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        self._budget.take(size_bytes)

    def _give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._budget.give_back(size_bytes)
        self._let_in()

    async def _wait(self, size_bytes: int) -> None:
        """Returns when the room is taken."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self._set_limits()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()
            else:  # it was let in just now
                self._give_back(size_bytes)
            raise

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._has_room(size_bytes):
                    return
                self._take(size_bytes)
                turn.set_result(None)
            self._waiting.popleft()
        self._set_limits()

    def _set_limits(self) -> None:
        """Who takes long is given up where others wait."""
        for limit, began in self._under_way.items():
            if not limit.expired():
                limit.reschedule(began + limits.DECODED_SECONDS_MAX if self._waiting else None)
