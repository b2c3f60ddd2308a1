"""Java's connections to a gateway that is about to stop: throttled, so that they can be ended with nothing under way.

Java's client stays where it has a connection. What was refused, or under way when its connection ended, it sends again
only after retry.backoff.ms (100 ms). Where a connection ends with nothing under way it is at another gateway in half of
that (reconnect.backoff.ms): it asks at once where to go, and sends what came meanwhile there. An answer with a throttle
time brings that about: for so long the client sends nothing more on the connection (KIP-219). One that is further
away than SILENT_SECONDS may have sent something before it heard, and loses as much time as if it was refused.

It asks on another connection, which must not be throttled, too. So of each client, as far as clients can be told apart,
one connection is throttled after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.clients.sending_away import Who
from barnabas.gateway.request_times import RequestTimes

THROTTLE_TIME_MS: Final = int(limits.THROTTLE_SECONDS * 1000)


class Throttling:
    """Owner of which connections are throttled, and of whose turn it is."""

    def __init__(self) -> None:
        self._there_at_begin: frozenset[int] = frozenset()
        self._until = 0.0
        """When the last turn begins, by the event loop's time."""
        self._throttled: dict[int, tuple[Who, RequestTimes]] = {}
        """The times are those of the first request that was answered with a throttle time."""
        self._next_at: dict[Who, float] = {}
        """From when on another connection of the client may be throttled."""

    def begin(self, connection_ids: Iterable[int]) -> None:
        """From now on those connections are throttled, each when it is its turn."""
        self._there_at_begin, self._until = frozenset(connection_ids), _now() + limits.TURNS_SECONDS

    def throttle(self, connection_id: int, who: Who, times: RequestTimes) -> int | None:
        """Throttle the connection, if it is its turn, by the answer to the request with these `times`.

        Returns the throttle time of the answer, in milliseconds: 0 while it is another connection's turn.

        None where its own does not come, as it was not there when this began, or too many have the client's name.
        """
        if connection_id not in self._throttled:
            now = _now()
            if connection_id not in self._there_at_begin or now > self._until:
                return None
            if now < self._next_at.get(who, now):
                return 0
            self._throttled[connection_id] = (who, times)
            self._next_at[who] = now + limits.THROTTLE_SECONDS
        return THROTTLE_TIME_MS

    def is_silent(self, connection_id: int) -> bool:
        """Whether its client is throttled, and what it had sent by then has come."""
        if connection_id not in self._throttled:
            return False
        left_at = self._throttled[connection_id][1].left_at
        return left_at is not None and _now() >= left_at + limits.SILENT_SECONDS

    def on_ended(self, connection_id: int) -> None:
        """The connection was ended. Who was throttled on it asks where to go; then it is another one's turn."""
        if connection_id in self._throttled:
            who, _ = self._throttled[connection_id]
            self._next_at[who] = _now() + limits.ASKING_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
