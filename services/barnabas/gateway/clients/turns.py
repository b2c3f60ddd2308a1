"""The order in which the Produce requests of one connection hand their batches over.

Produce requests overlap, and yet batches have to reach their partitions in the order of the connection. So each takes a
turn when it starts. Until the turn has come and the batches are handed over, a request may wait for whatever it has to,
or fail: those behind it stay behind. Where nobody has to wait it costs a place in a queue, no task, future or lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final


class Turn:
    """One request's place in the order. It is passed on once, with the batches or however the request ends."""

    __slots__ = ("_queue", "_waiter", "is_over")

    def __init__(self, turns: Turns) -> None:
        """The turn behind all that were taken before."""
        self._waiter: asyncio.Future[None] | None = None
        self.is_over = False
        self._queue = turns.queue
        self._queue.append(self)

    @property
    def has_come(self) -> bool:
        """Whether nobody before it is still to hand over; false on a connection that has ended."""
        queue = self._queue
        return self.is_over or (bool(queue) and queue[0] is self)

    async def wait(self) -> None:
        """Wait until it has come; cancelled when the connection ends before."""
        while not self.has_come:
            self._waiter = asyncio.get_running_loop().create_future()
            if self not in self._queue:
                self._waiter.cancel()
            await self._waiter

    def pass_on(self) -> None:
        """The request has handed over, or never will; to say it again is no error."""
        if self.is_over:
            return
        self.is_over = True
        queue = self._queue
        if queue and queue[0] is self:
            queue.popleft()
            if queue:
                queue[0]._wake()
        elif self in queue:
            queue.remove(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """It will not come any more."""
        if self._waiter is not None:
            self._waiter.cancel()


class Turns:
    """Owns the queue of one connection's requests that are still to hand over."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: deque[Turn] = deque()

    def close(self) -> None:
        """The connection has ended: no turn comes any more, and who waits for one is cancelled."""
        ended = list(self.queue)
        self.queue.clear()
        for turn in ended:
            turn.end()


def _alone() -> Turn:
    turn = Turn(Turns())
    turn.pass_on()
    return turn


ALONE: Final = _alone()
"""For a request that overlaps with no other: its turn has come."""
