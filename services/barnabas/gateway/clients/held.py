"""Why a client's connection is not read: the reasons by name, and those of them that its requests give."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Collection, Hashable
from typing import Any

from barnabas.gateway import limits


class Reason(enum.Enum):
    """Why a connection is not read now; the values are labels of metrics."""

    MUTED = "muted"
    """For a time, as the client is throttled."""
    ANSWERS_UNREAD = "answers unread"
    """Its client does not take what it asked for; as in Kafka, nothing more is read of it until it has."""
    NODE_FULL = "node full"
    """It writes to a storage node that has its share or more to answer."""
    NOBODY_LEADS = "nobody leads"
    """No leader took its last records: it sends one request at a time."""
    CONNECTION_BYTES = "connection bytes"
    """Too many bytes of it are not answered."""
    CONNECTION_REQUESTS = "connection requests"
    """Too many requests of it are not answered."""
    GATEWAY_BYTES = "gateway bytes"
    """Too many bytes of all connections together are not answered."""


def _nothing() -> None:
    """Nobody looks."""


class Held:
    """Owns what the requests of one connection say against reading it: set by handlers, looked at by the connection.

    It is entered (`with`) by each request that waits for a storage node which has its share or more to answer.
    """

    __slots__ = ("_refused", "_repeated", "_timer", "_until", "count", "is_muted", "on_mute", "refusals")

    def __init__(self) -> None:
        self.count = 0
        """Requests that are in it now."""
        self.refusals = 0
        """Requests in a row that no leader took."""
        self._refused: set[Hashable] = set()
        """The partitions that they were for."""
        self._repeated = 0
        """How many of them were for partitions that had been refused before."""
        self.is_muted = False
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        """By the event loop's time. The handle need not know: uvloop's has no time for what is due at once."""
        self.on_mute: Callable[[], None] = _nothing
        """Called when muting begins and when it ends."""

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1

    def until(self, result: asyncio.Future[Any]) -> None:
        """A request without a task is in it until there is a result."""
        self.count += 1
        result.add_done_callback(self.__exit__)

    def mute(self, seconds: float) -> None:
        """Take nothing more of the client's for so long from now, as Kafka does with who is over a quota (KIP-219).

        What is under way is answered as ever, the request that says this too: the client learns from its answer for how
        long. Nothing is read, and of what was read already nothing is started. Of two times the one that ends later
        counts; none is longer than MUTED_SECONDS_MAX.
        """
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, limits.MUTED_SECONDS_MAX)
        if self._timer is not None:
            if until <= self._until:
                return
            self._timer.cancel()
        self._until = until
        self._timer = loop.call_at(until, self._end_mute)
        self.is_muted = True
        self.on_mute()

    def _end_mute(self) -> None:
        self._timer = None
        self.is_muted = False
        self.on_mute()

    def close(self) -> None:
        """The connection has ended."""
        self.on_mute = _nothing
        if self._timer is not None:
            self._timer.cancel()

    def on_taken(self) -> None:
        """A request was not refused: those that were before are no row any more."""
        self.refusals = self._repeated = 0
        self._refused.clear()

    def next_pause_seconds(self, partitions: Collection[Hashable]) -> float:
        """How long to mute the client for another refusal: not at all for the first one of any of the `partitions`,
        then longer and longer.

        Where a broker that led many stops, a producer hears of one after the other, and has to hear of each at once.
        """
        self.refusals += 1
        is_news = not self._refused.issuperset(partitions)
        if is_news and len(self._refused) < limits.REFUSED_PARTITIONS_MAX:
            self._refused.update(partitions)
            return 0.0
        self._repeated += 1
        doublings = min(self._repeated - 1, 16)
        return min(limits.REFUSAL_SECONDS_MIN * float(2**doublings), limits.REFUSAL_SECONDS_MAX)
