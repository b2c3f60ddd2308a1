"""A group whose members go over from the classic protocol to that of KIP-848 and back, one by one, as things fail."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checks import image_of, is_only_about
from classic_protocol_life import ClassicLife
from consumer_group_history import SESSION_SECONDS, ConsumerGroupHistory
from consumer_group_lives import LOST, MIGRATING, Expelled, Life
from consumer_group_plan import (
    CONSUMER,
    LATE_DECISION,
    LOST_DECISION,
    SHELVES,
    ConsumerGroupPlan,
    GroupFault,
    Seat,
)
from consumer_protocol_life import ConsumerLife
from groups import Interrupted
from history import Place
from kafka_client import RETRY_SECONDS, KafkaClient, create_topic
from machines import CoordinatingMachine
from transaction_faults import StartAgain
from world import World

from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.metadata.image import GROUP_METADATA_TOPIC

STEP_SECONDS: Final = 0.12
"""Between two requests of a member, at most."""

TENURE_SECONDS: Final = 2.0
"""How long somebody is a member before he leaves, or is gone, on average."""

LEAVES: Final = 0.7
SILENT: Final = 0.15
"""How often a member that ends leaves, or is not heard of for longer than its session and then goes on. Else it is gone
at once.
"""

COMMITS_AFTER_SILENCE: Final = 0.8
"""It has read all that was there meanwhile."""

WAIT_SECONDS_MAX: Final = 1.0
"""For something to be sent."""

DOWN_SECONDS: Final = 0.1


class SeatTaker:
    """One place in the group, taken by one member after another. Owner of who takes it."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: ConsumerGroupHistory,
        seat: Seat,
        places: Sequence[Place],
        chance: random.Random,
    ) -> None:
        self.life: Life | None = None
        self.name = client.name
        self._world = world
        self._client = client
        self._history = history
        self._seat = seat
        self._places = places
        self._chance = chance
        self._lives = 0
        self._is_released = True

    async def run(self, until: float, calm: asyncio.Event) -> None:
        """Members come and go until then; the last one stays."""
        began = self._world.now
        while True:
            protocol = self._seat.protocol_at(self._world.now - began)
            switches = [began + at for at, _ in self._seat.switches if began + at > self._world.now]
            tenure = self._world.now + max(0.5, self._chance.expovariate(1 / TENURE_SECONDS))
            ends_at = min([*switches, tenure if tenure < until else float("inf")])
            self.life = self._new_life(protocol)
            if await self._live(self.life, ends_at, calm):
                await self._part(self.life, protocol)
            self.life.end()

    def _new_life(self, protocol: str) -> Life:
        self._lives += 1
        instance_id = f"{self.name}-instance" if self._seat.is_static else None
        is_new = protocol == CONSUMER
        life = (ConsumerLife if is_new else ClassicLife)(
            *(self._world, self._client, self._history, self._seat, instance_id),
            *(f"{self.name}-{self._lives}" if is_new else "", self._places, self._chance),
        )
        life.is_released, self._is_released = self._is_released, False
        life.say(f"comes, {protocol}")
        return life

    async def _live(self, life: Life, ends_at: float, calm: asyncio.Event) -> bool:
        """Whether it was a member to the end, or wanted to be one."""
        while self._world.now < ends_at:
            try:
                await life.step(is_calm=calm.is_set())
            except LOST as error:
                life.on_unanswered()
                life.say(f"{error}")
                await asyncio.sleep(self._chance.uniform(0.5, 1.0) * RETRY_SECONDS)
            except Interrupted as error:
                life.say(f"{error}")
            except Expelled as error:
                life.say(f"{error}")
                return False
            await asyncio.sleep(self._chance.uniform(0.3, 1.0) * STEP_SECONDS)
        return True

    async def _part(self, life: Life, protocol: str) -> None:
        kind = self._chance.random()
        if kind < LEAVES:
            self._is_released = await life.leave()
        elif kind < LEAVES + SILENT and life.is_in:
            life.say("is silent")
            await asyncio.sleep(self._chance.uniform(0.8, 2.0) * SESSION_SECONDS)
            life.commits = COMMITS_AFTER_SILENCE
            await self._live(life, self._world.now + 0.5, asyncio.Event())
            life.say(f"is gone, {protocol}")
        else:
            life.say(f"is gone, {protocol}")
            await asyncio.sleep(self._chance.choice((0.0, 0.3)))


class MigratingGroup:
    """Owner of the members, and of what they were told."""

    def __init__(
        self,
        world: World,
        plan: ConsumerGroupPlan,
        bootstrap: Sequence[str],
        coordinators: Sequence[CoordinatingMachine],
    ) -> None:
        self.history = ConsumerGroupHistory(world, self._loaded, self._is_sure)
        self._world = world
        self._plan = plan
        self._bootstrap = bootstrap
        self._coordinators = coordinators
        self._places = [Place(SHELVES, number) for number in range(plan.partitions)]
        self._seats: list[SeatTaker] = []
        self._chance = world.chance_of("faults of the migrating group")

    def _loaded(self) -> tuple[PartitionRuntime[Any, Any, Any], ...]:
        """Those that take themselves for the group's, and have read its log."""
        runtimes = (
            each.coordinator.partitions.runtime(0)
            for each in self._coordinators
            if each.coordinator is not None
        )
        return tuple(each for each in runtimes if each is not None and each.is_loaded)

    def _is_sure(self) -> bool:
        """Whether one alone has read the log, and writes to it: one that does not says yes to every heartbeat of the
        classic protocol, as Kafka's does while it reads the log.
        """
        return [each.state for each in self._loaded()] == [PartitionState.SERVING]

    # -- in the clients' process --------------------------------------------------------------------------------

    async def run(self, topic: Mapping[str, Any], until: float, calm: asyncio.Event) -> None:
        """Make the topic, which has the settings of `topic`, and read it."""
        async with asyncio.TaskGroup() as tasks:
            admin = self._client("administrator of the migrating group", tasks)
            problem = await create_topic(
                admin, {**topic, "name": SHELVES, "num_partitions": self._plan.partitions}
            )
            if problem:
                self._world.violate(f"{SHELVES} cannot be created: {problem}")
            for number, seat in enumerate(self._plan.seats):
                client = self._client(f"seat-{number}", tasks)
                chance = self._world.chance_of(f"{client.name}/group")
                taker = SeatTaker(self._world, client, self.history, seat, self._places, chance)
                self._seats.append(taker)
                tasks.create_task(taker.run(until, calm), name=client.name)

    def _client(self, name: str, tasks: asyncio.TaskGroup) -> KafkaClient:
        client = KafkaClient(self._world, name, [SHELVES], self._bootstrap)
        tasks.create_task(client.follow(), name=f"metadata of {name}")
        return client

    # -- what befalls its coordinator ---------------------------------------------------------------------------

    async def disturb(self, start_again: StartAgain, begins_at: float) -> None:
        """All that the plan has."""
        for fault in self._plan.faults:
            await asyncio.sleep(max(0.0, begins_at + fault.at - self._world.now))
            self._say(str(fault))
            with contextlib.suppress(TimeoutError):
                await self._befall(fault, start_again)

    async def _befall(self, fault: GroupFault, start_again: StartAgain) -> None:
        """Raises TimeoutError where nothing is sent."""
        owner, node = self._way()
        if not owner or not node:
            return
        # Within a process nothing is on its way.
        if fault.kind in (LOST_DECISION, LATE_DECISION) and owner != node:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                is_wanted = is_only_about(self._world, GROUP_METADATA_TOPIC)
                late = await self._world.network.keep_back(owner, node, "Append", is_wanted)
            if fault.kind == LATE_DECISION:
                await asyncio.sleep(fault.seconds)
                self._say("it comes" if late.deliver() else "nobody is there for it")
                return
        await start_again(owner, DOWN_SECONDS)

    def _way(self) -> tuple[str, str]:
        """From the coordinator that owns the group to the node that its log is at."""
        groups = image_of(self._world).topics.get(GROUP_METADATA_TOPIC)
        if groups is None or groups.partitions[0].leader < 0:
            return "", ""
        return groups.partitions[0].coordinator_id, f"node-{groups.partitions[0].leader}"

    def _say(self, what: str) -> None:
        self._world.trace.say("fault", what)

    # -- in the end ---------------------------------------------------------------------------------------------

    def unmet(self) -> list[str]:
        """What is missing before the group is stable, and everything owned once."""
        lives = [each.life for each in self._seats]
        if not lives:
            return [f"nobody is in the group {MIGRATING}"]
        unmet = [
            f"{each.name} does not settle ({each.life and each.life.member})"
            for each in self._seats
            if each.life is None or not each.life.is_settled
        ]
        members = [each.member for each in lives if each is not None]
        epochs = sorted({each.epoch for each in members})
        if len(epochs) != 1:
            unmet.append(f"members of {MIGRATING} are in the epochs {epochs}")
        owned = sorted(place for each in members for place in each.owned)
        if owned != self._places:
            unmet.append(f"{MIGRATING} has {[place.partition for place in owned]} of {len(self._places)}")
        return unmet
