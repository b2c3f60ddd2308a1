"""Who looks on at a group: asks how far it is, again and again, through whichever gateway, and is no member of it.

As `kafka-consumer-groups --describe` behind an address that all gateways share. So it comes to a gateway that its
members do not use, and to a coordinator that does not know that the group is another one's by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from copiers import COPIERS
from group_history import GroupHistory
from groups import Member
from history import Place
from kafka_client import KafkaClient
from transaction_history import TransactionHistory
from world import World

PAUSE_SECONDS: Final = 0.1
"""Between two looks, at most."""


class Onlooker(Member):
    """Owner of nothing: asks as a member does, without being one, and holds answers against what was told before."""

    # While the log's leader refuses writes, a former owner may tell who does not ask for that what it has.
    asks_for_stable = True

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: GroupHistory,
        places: Sequence[Place],
        gateways: Sequence[str],
    ) -> None:
        """`gateways` are addresses."""
        super().__init__(world, client, history, places, world.chance_of(f"{client.name}/group"))
        self._gateways = gateways

    async def look_on(self, until: float) -> None:
        while self._world.now < until:
            await asyncio.sleep(self._chance.uniform(0.3, 1.0) * PAUSE_SECONDS)
            self._coordinator = self._chance.choice(self._gateways)
            await self._attempt(self._look)


class CopyOnlooker(Onlooker):
    """At the copiers: what is stable of their offsets (`--require-stable` of Kafka's admin client)."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: TransactionHistory,
        places: Sequence[Place],
        gateways: Sequence[str],
    ) -> None:
        super().__init__(world, client, GroupHistory(world), places, gateways)
        self.group = COPIERS
        self._transactions = history

    async def _look(self) -> None:
        known = {place: self._transactions.committed_offset(place) for place in self._places}
        found = await self._stable(self._places)
        self._say(f"is told that {[(place.partition, offset) for place, offset in found.items()]} is stable")
        self._transactions.on_told(known, found, self.name)
