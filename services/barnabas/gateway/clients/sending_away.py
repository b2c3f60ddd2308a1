"""Whom a gateway that is about to stop tells to ask where to go, by refusing what they send for a moment.

Who loses a connection without that comes back to where it was, or finds nobody there; and librdkafka tries the place
that it is told next only after a pause, as it has just tried another. Who is told first goes there at once. Some
clients ask as well, but stay as long as they have their connection: they ask once for all that they have, some of which
may hear of it only later. For Java's see `throttling` too.

A client may hear of it late, as answers leave in the order of the requests. So each moment counts from when the answer
that tells it has left.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.request_times import RequestTimes

Who = tuple[str, str]
"""A client as it is known beyond one connection: its address and its client.id, which others may have as well."""


class SendingAway:
    """Owner of whom the gateway has told, until when, and who has asked."""

    def __init__(self) -> None:
        self._begun_at: float | None = None
        self._telling_until: dict[int, float] = {}
        """At the latest: who has been sent its first refusal before that is told for TELLING_SECONDS from then on."""
        self._told: dict[int, tuple[Who, RequestTimes]] = {}
        """The times are those of the first request of which records were refused."""
        self._asked_at: dict[Who, float] = {}

    def begin(self) -> None:
        """From now on producers are told."""
        self._begun_at = _now()

    @property
    def has_begun(self) -> bool:
        """Whether `begin` was called: so it stays, whoever is still told."""
        return self._begun_at is not None

    def is_telling(self, connection_id: int) -> bool:
        """Whether the connection is being told, from its first Produce request on (which asks this): until
        TELLING_SECONDS after the first refusal has left; at most until SENDING_AWAY_SECONDS are over, or for
        TELLING_SECONDS where it comes later.

        What comes later is from a client that stays where it has a connection, whatever it was told: it is served until
        that ends.
        """
        if self._begun_at is None:
            return False
        now = _now()
        at_most = max(self._begun_at + limits.SENDING_AWAY_SECONDS, now + limits.TELLING_SECONDS)
        until = self._telling_until.setdefault(connection_id, at_most)
        heard_at = self._heard_at(connection_id)
        return now < (until if heard_at is None else min(until, heard_at + limits.TELLING_SECONDS))

    def on_told(self, connection_id: int, who: Who, times: RequestTimes) -> None:
        """Records of the client were refused on the connection, for it to ask, in the request with these `times`."""
        self._told.setdefault(connection_id, (who, times))

    def on_asked(self, who: Who) -> None:
        """The client asks where to go; since this has begun it hears of other gateways. The first time counts: it may
        ask again and again.
        """
        if self.has_begun:
            self._asked_at.setdefault(who, _now())

    def has_had_time_to_go(self, connection_id: int) -> bool:
        """Whether the connection's client has heard, and has asked (or another one of that name), and would have gone
        by now if it went by itself as most do.
        """
        heard_at = self._heard_at(connection_id)
        if heard_at is None:
            return False
        who, _ = self._told[connection_id]
        asked_at = self._asked_at.get(who)
        return asked_at is not None and _now() >= max(heard_at, asked_at) + limits.GOING_SECONDS

    def _heard_at(self, connection_id: int) -> float | None:
        """When the first refusal left, as far as this end can know."""
        told = self._told.get(connection_id)
        return None if told is None else told[1].left_at


def _now() -> float:
    return asyncio.get_running_loop().time()
