"""Whom a gateway that is about to stop tells to ask where to go, by refusing what they send for a moment.

Who loses a connection without that comes back to where it was, or finds nobody there; and librdkafka tries the place
that it is told next only after a pause, as it has just tried another. Who is told first goes there at once.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits


class SendingAway:
    """Owner of whom the gateway has told, and since when."""

    def __init__(self) -> None:
        self.has_begun = False
        self._told_at: dict[int, float] = {}

    def begin(self) -> None:
        """From now on producers are told."""
        self.has_begun = True

    def is_told(self, connection_id: int) -> bool:
        """Whether the connection is being told: by all that comes in TELLING_SECONDS from its first request on.

        What comes later is from a client that stays where it has a connection (Java's), whatever it was told: it is
        served until that ends.
        """
        if not self.has_begun:
            return False
        now = asyncio.get_running_loop().time()
        return now < self._told_at.setdefault(connection_id, now) + limits.TELLING_SECONDS

    def has_told(self, connection_id: int) -> bool:
        """Whether the connection was told, long enough ago for its client to have asked where to go."""
        told_at = self._told_at.get(connection_id)
        return told_at is not None and asyncio.get_running_loop().time() >= told_at + limits.ASKING_SECONDS
