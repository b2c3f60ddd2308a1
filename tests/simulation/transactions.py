"""Transactions in one run: who writes, copies and reads in them, and what is to be true in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apart_plan import LAST_COORDINATOR
from checks import image_of
from copiers import Copier
from group_history import GroupHistory
from history import History, Place
from kafka_client import KafkaClient, create_topic
from machines import CoordinatingMachine, NodeMachine
from onlooker import CopyOnlooker
from transaction_checks import TransactionChecks, uncopied, undecided, unended
from transaction_faults import StartAgain, TransactionFaults
from transaction_history import TransactionHistory
from transaction_plan import TransactionPlan
from transaction_readers import READ_COMMITTED, READ_UNCOMMITTED, TransactionReader
from transactional_producers import Writer
from world import World

LEDGER: Final = "ledger"
"""What is written in transactions."""
COPY: Final = "copy"
"""What is copied of it."""


class Transactions:
    """Owner of the clients with transactions, and of what they were told."""

    def __init__(self, world: World, plan: TransactionPlan, bootstrap: Sequence[str]) -> None:
        self._world = world
        self._plan = plan
        self._bootstrap = bootstrap
        self._reads = History(world)
        self._history = TransactionHistory(world)
        self._group_history = GroupHistory(world)
        self._sources = [Place(LEDGER, number) for number in range(plan.partitions)]
        self._targets = [Place(COPY, number) for number in range(plan.copy_partitions)]
        self._writers: list[Writer] = []
        self._readers: list[TransactionReader] = []

    async def run(self, topic: Mapping[str, Any], until: float) -> None:
        """Make the topics, which have the settings of `topic`, and use them."""
        if self._plan.owners_are_apart:
            await self._other_owner()
        async with asyncio.TaskGroup() as tasks:
            admin = self._client("administrator of transactions", tasks)
            for name, places in ((LEDGER, self._sources), (COPY, self._targets)):
                problem = await create_topic(admin, {**topic, "name": name, "num_partitions": len(places)})
                if problem:
                    self._world.violate(f"{name} cannot be created: {problem}")
            for number in range(self._plan.writers):
                client = self._client(f"writer-{number}", tasks)
                chance = self._world.chance_of(f"{client.name}/transactions")
                writer = Writer(
                    *(self._world, client, self._history, self._sources, chance, tasks.create_task),
                    new=self._plan.new,
                    is_steady=self._plan.is_steady,
                )
                self._writers.append(writer)
                tasks.create_task(writer.run(until), name=writer.name)
            for number in range(self._plan.copiers):
                client = self._client(f"copier-{number}", tasks)
                chance = self._world.chance_of(f"{client.name}/transactions")
                histories = self._reads, self._history, self._group_history
                copier = Copier(
                    *(self._world, client, histories, self._sources, self._targets, chance),
                    new=self._plan.new,
                )
                tasks.create_task(copier.run(float("inf"), asyncio.Event()), name=copier.name)
            if self._plan.owners_are_apart:
                client = self._client("onlooker of the copy", tasks)
                onlooker = CopyOnlooker(self._world, client, self._history, self._sources, self._bootstrap)
                tasks.create_task(onlooker.look_on(until), name=client.name)
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
                for place in (*self._sources, *self._targets):
                    self._read(tasks, place, isolation)

    async def _other_owner(self) -> None:
        """Until there is one that does not own the groups."""
        while LAST_COORDINATOR not in image_of(self._world).coordinators:
            await asyncio.sleep(0.02)

    async def disturb(self, start_again: StartAgain, begins_at: float) -> None:
        """Whatever befalls their coordinator."""
        faults = TransactionFaults(self._world, start_again, self._history, self._sources, self._bootstrap)
        while not self._writers:
            await asyncio.sleep(0.05)
        await faults.run(self._plan.faults, begins_at)

    def _client(self, name: str, tasks: asyncio.TaskGroup) -> KafkaClient:
        client = KafkaClient(self._world, name, [LEDGER, COPY], self._bootstrap)
        tasks.create_task(client.follow(), name=f"metadata of {name}")
        return client

    def _read(self, tasks: asyncio.TaskGroup, place: Place, isolation: int) -> None:
        client = self._client(f"reader-{place}-{isolation}", tasks)
        chance = self._world.chance_of(f"{client.name}/transactions")
        histories = self._reads, self._history
        reader = TransactionReader(self._world, client, histories, place, chance, isolation)
        self._readers.append(reader)
        tasks.create_task(reader.run(), name=client.name)

    def unmet(
        self, nodes: Sequence[NodeMachine], coordinators: Mapping[str, CoordinatingMachine]
    ) -> list[str]:
        """What is missing before all is decided, read and copied."""
        unmet = [f"{each.name} writes" for each in self._writers if not each.is_done]
        if unmet or not self._writers:
            return unmet or ["nobody writes in transactions"]
        unmet += undecided(self._world, nodes, (*self._sources, *self._targets))
        unmet += unended(self._world, coordinators)
        unmet += uncopied(self._history, self._sources, self._targets)
        ends = self._reads.high_watermarks
        unmet += [
            f"{each.name} is at {each.position} of {ends[each.place]} in {each.place}"
            for each in self._readers
            if each.position < ends.get(each.place, 0)
        ]
        return unmet

    def check(self, nodes: Sequence[NodeMachine], coordinators: Mapping[str, CoordinatingMachine]) -> None:
        """What holds once nothing is missing."""
        histories = self._reads, self._history
        TransactionChecks(self._world, histories, nodes, coordinators).check(self._sources, self._targets)
