"""Whom a gateway that is about to stop tells to ask where to go, by refusing what they send for a moment.

Who loses a connection without that comes back to where it was, or finds nobody there; and librdkafka tries the place
that it is told next only after a pause, as it has just tried another. Who is told first goes there at once. Java's
client asks as well, but stays as long as it has its connection.

A client may hear of it late, as answers leave in the order of the requests. So each moment counts from when nothing was
under way on the connection, as far as this end can know.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits

Who = tuple[str, str]
"""A client as it is known beyond one connection: its address and its client.id, which others may have as well."""


class SendingAway:
    """Owner of whom the gateway has told, until when, who has asked, and where nothing is under way."""

    def __init__(self) -> None:
        self._begun_at: float | None = None
        self._telling_until: dict[int, float] = {}
        self._quiet_since: dict[int, float] = {}
        self._told_at: dict[int, tuple[float, Who]] = {}
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
        TELLING_SECONDS after its answers have left; at most until SENDING_AWAY_SECONDS are over, or for TELLING_SECONDS
        where it comes later.

        What comes later is from a client that stays where it has a connection, whatever it was told: it is served until
        that ends.
        """
        if self._begun_at is None:
            return False
        now = _now()
        at_most = max(self._begun_at + limits.SENDING_AWAY_SECONDS, now + limits.TELLING_SECONDS)
        return now < self._telling_until.setdefault(connection_id, at_most)

    def on_quiet(self, connection_id: int, active_at: float) -> None:
        """Nothing is under way on the connection, on which something was read last at `active_at`, a time of the event
        loop: a request may have come and been answered between two looks.
        """
        now = _now()
        self._quiet_since[connection_id] = max(self._quiet_since.get(connection_id, now), active_at)
        until = self._telling_until.get(connection_id)
        if until is not None:
            self._telling_until[connection_id] = min(until, now + limits.TELLING_SECONDS)

    def on_busy(self, connection_id: int) -> None:
        """Something is under way on the connection."""
        self._quiet_since.pop(connection_id, None)

    def on_told(self, connection_id: int, who: Who) -> None:
        """Records of the client were refused on the connection, for it to ask."""
        self._told_at.setdefault(connection_id, (_now(), who))

    def on_asked(self, who: Who) -> None:
        """The client asks where to go; since this has begun it hears of other gateways."""
        if self.has_begun:
            self._asked_at.setdefault(who, _now())

    def has_had_time_to_go(self, connection_id: int) -> bool:
        """Whether the connection's client was told, has asked and has all its answers, and would have gone by now if it
        went by itself.
        """
        told = self._told_at.get(connection_id)
        if told is None:
            return False
        told_at, who = told
        asked_at, quiet_since = self._asked_at.get(who), self._quiet_since.get(connection_id)
        if asked_at is None or quiet_since is None:
            return False
        return _now() >= max(told_at, asked_at, quiet_since) + limits.GOING_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
