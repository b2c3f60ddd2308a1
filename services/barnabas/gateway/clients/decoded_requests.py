"""How many large requests are decoded at a time.

A request of a few hundred kilobytes that lists 50,000 partitions takes a hundred megabytes while it is worked on: as
objects, as messages to other services, as rows of its answer. So large requests, by an estimate, have a share of the
gateway's budget together; those for which there is no room wait, as bytes, in the order in which they came. Those that
are not as large only count for the budget, and for less while they wait for other services; small ones, which are
nearly all, do not even come here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.waits import Wait

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


class Size(NamedTuple):
    """About what a request takes, besides its frame."""

    bytes: int
    """While it is worked on."""
    waiting_bytes: int
    """While it waits for other services."""


def decoded_size(api_key: int, frame_bytes: int, items: int) -> Size:
    """What to count for a request of so many items."""
    # Records stay bytes; a text with one character beyond the usual takes four times what it takes in the frame.
    texts = 0 if api_key == _PRODUCE else limits.DECODED_TEXT_FACTOR * frame_bytes
    size_bytes = items * limits.DECODED_ITEM_BYTES + texts
    # When very many that waited are answered at once, those whose answers take turns all have their answers then.
    is_answered_at_once = items <= limits.ROWS_AT_A_TIME
    waiting_bytes = items * limits.DECODED_WAITING_ITEM_BYTES + texts
    return Size(size_bytes, waiting_bytes if is_answered_at_once else size_bytes)


class _CountedWait(Wait):
    """Of a request that counts for less while it waits."""

    __slots__ = ("_budget", "_less_bytes", "_parts")

    def __init__(self, budget: ByteBudget, size: Size) -> None:
        self._budget = budget
        self._less_bytes = size.bytes - size.waiting_bytes
        self._parts = 0
        """Of the request, that wait."""

    def __enter__(self) -> None:
        self._parts += 1
        if self._parts == 1:
            self._budget.give_back(self._less_bytes)

    def __exit__(self, *_: object) -> None:
        self._parts -= 1
        if not self._parts:
            self._budget.take(self._less_bytes)


class _HurriedWait(Wait):
    """Of a large request: others may wait for the room that it takes."""

    __slots__ = ("_hurry", "_is_hurried", "_timer")

    def __init__(self) -> None:
        self._hurry: Callable[[], None] | None = None
        self._is_hurried = False
        self._timer: asyncio.TimerHandle | None = None

    def on_hurry(self, hurry: Callable[[], None] | None) -> None:
        self._hurry = hurry
        if self._is_hurried and hurry is not None:
            hurry()

    def hurry_at(self, when: float | None) -> None:
        """Have it hurried, once, at `when` by the event loop's time; None: not at all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None and not self._is_hurried:
            self._timer = asyncio.get_running_loop().call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._is_hurried = True
        if self._hurry is not None:
            self._hurry()


class _UnderWay(NamedTuple):
    began: float
    """By the event loop's time."""
    wait: _HurriedWait


class DecodedRequests:
    """Owns the count of what large requests take, and the order of those that wait for room."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._bytes_max = max(0, budget.bytes_max) // limits.DECODED_ONE_PART_IN
        self.used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._under_way: dict[asyncio.Timeout, _UnderWay] = {}
        """By each one's limit of time."""

    async def serve(self, size: Size, serve: Callable[[Wait], Awaitable[ResultT]]) -> ResultT:
        """What `serve(wait)` returns, which decodes a request of this size and answers it, once there is room for it.

        A request that is not very large waits for nobody. One that is, is hurried where others wait for room.

        Raises TooLong where that took longer than DECODED_SECONDS_MAX while others waited for room.
        """
        size_bytes = size.bytes
        if size_bytes <= limits.DECODED_AT_ONCE_BYTES:
            self._budget.take(size_bytes)
            try:
                return await serve(_CountedWait(self._budget, size))
            finally:
                self._budget.give_back(size_bytes)
        if not self._has_room(size_bytes) or self._waiting:
            await self._wait(size_bytes)
        else:
            self._take(size_bytes)
        return await self._serve_within_time(size_bytes, serve)

    async def _serve_within_time(
        self, size_bytes: int, serve: Callable[[Wait], Awaitable[ResultT]]
    ) -> ResultT:
        wait = _HurriedWait()
        try:
            async with asyncio.timeout(None) as limit:
                self._under_way[limit] = _UnderWay(asyncio.get_running_loop().time(), wait)
                self._set_limits()
                try:
                    return await serve(wait)
                finally:
                    del self._under_way[limit]
                    wait.hurry_at(None)
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
        """Where others wait, long polls are hurried, and who takes long is given up."""
        for limit, (began, wait) in self._under_way.items():
            if not limit.expired():
                limit.reschedule(began + limits.DECODED_SECONDS_MAX if self._waiting else None)
            wait.hurry_at(began + limits.DECODED_LONG_POLL_SECONDS_MAX if self._waiting else None)
