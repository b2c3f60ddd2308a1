"""One run of one seed: a cluster, its clients, its faults, and what is to be true in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from checks import Watch, check_logs, check_terms, describe_replicas, image_of
from clients import ClusterView, Consumer, Producer, allocate_producer_ids
from fault_plan import FAULTS_SECONDS, Fault, Plan, make_plan
from faults import Faults
from history import History, Place
from machines import ClientMachine, ControllerMachine, Machine, NodeMachine
from trace_of_run import Trace
from world import World

from barnabas.kernel.environment import Environment
from barnabas.messages.controller_pb2 import ConfigEntry, CreateTopicsRequest, NewTopic

TOPIC: Final = "events"

START_SECONDS_MAX: Final = 20.0
"""Within which a cluster on which nothing fails is there."""

RECOVERY_SECONDS_MAX: Final = 25.0
"""Within which everything serves again once nothing fails any more: a controller's lease, the grace for services after
a takeover, and the recovery of logs are in it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    plan: Plan
    violations: tuple[str, ...]
    trace: Trace
    virtual_seconds: float
    real_seconds: float
    sent: int
    acknowledged: int
    read: int

    @property
    def is_well(self) -> bool:
        return not self.violations


class SimulatedCluster:
    """Owner of the machines of one run."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.history = History(world)
        self.controllers = [
            ControllerMachine(world, number + 1, plan.rebalance_seconds) for number in range(plan.controllers)
        ]
        settings = {"replica.lag.time.max.ms": str(plan.lag_ms_max)}
        self.nodes = [
            NodeMachine(world, number + 1, plan.controllers, settings) for number in range(plan.nodes)
        ]
        self.clients = ClientMachine(world, "clients", self._be_clients)
        self.machines: dict[str, Machine] = {
            each.name: each for each in (*self.controllers, *self.nodes, self.clients)
        }
        self.places = [Place(TOPIC, number) for number in range(plan.partitions)]
        self._view: ClusterView | None = None
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._topics_are_there = asyncio.Event()

    async def tell(self) -> None:
        """The whole story."""
        world = self.world
        for machine in self.machines.values():
            machine.start()
        watch = world.loop.create_task(Watch(world, self.nodes).run(), name="watch")
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._topics_are_there.wait()
        except TimeoutError:
            world.violate(f"the cluster does not start: {self._unmet()}")
            return
        begins_at = world.now
        await Faults(world, self.machines).run(list(self.plan.faults), begins_at)
        await asyncio.sleep(max(0.0, begins_at + FAULTS_SECONDS - world.now))
        world.trace.say("fault", "nothing fails any more")
        await self._recover()
        watch.cancel()
        check_terms(world)
        check_logs(world, self.plan, self.history, self.nodes, self.places)

    async def _recover(self) -> None:
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                while self._unmet():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            unmet = self._unmet()
            for line in describe_replicas(self.nodes):
                self.world.trace.say("check", line)
            self.world.violate(f"{RECOVERY_SECONDS_MAX} s after the last fault: {unmet}")

    def _unmet(self) -> list[str]:
        """What is still missing before everything serves."""
        unmet = [
            f"{machine.name}: {condition}"
            for machine in (*self.controllers, *self.nodes)
            for condition in machine.unmet()
        ]
        if not self._topics_are_there.is_set():
            return [*unmet, "no topics"]
        unmet += [f"{each.name} waits for {each.place}" for each in self._producers if not each.is_done]
        if unmet:
            return unmet
        image = image_of(self.world)
        for place in self.places:
            record = image.topics[place.topic].partitions[place.partition]
            if record.leader < 0:
                unmet.append(f"{place} has no leader")
            if set(record.isr) != set(record.replicas):
                unmet.append(f"{place} has the ISR {list(record.isr)} of {list(record.replicas)}")
            unmet += self._unread(place)
        return unmet

    def _unread(self, place: Place) -> list[str]:
        promised = self.history.promised(place, self.plan.replication_factor)
        end = max(promised, default=-1) + 1
        return [
            f"{each.name} is at {each.position} of {end} in {place}"
            for each in self._consumers
            if each.place == place and each.position < end
        ]

    # -- in the clients' process --------------------------------------------------------------------------------

    async def _be_clients(self, environment: Environment) -> None:
        view = ClusterView(environment, self.plan.controllers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(view.follow(), name="metadata")
            await self._create_topics(view)
            producer_ids = await allocate_producer_ids(view, 10)
            self._make_clients(view, environment, list(producer_ids))
            until = self.world.now + FAULTS_SECONDS + 0.5
            for producer in self._producers:
                tasks.create_task(producer.run(until), name=producer.name)
            for consumer in self._consumers:
                tasks.create_task(consumer.run(), name=consumer.name)
            self._topics_are_there.set()

    async def _create_topics(self, view: ClusterView) -> None:
        plan = self.plan
        settings = {"segment.ms": str(plan.segment_ms), "min.insync.replicas": str(plan.min_insync_replicas)}
        if plan.is_flushed:
            settings["flush.messages"] = "1"
        topic = NewTopic(
            name=TOPIC,
            partition_count=plan.partitions,
            replication_factor=plan.replication_factor,
            configs=[ConfigEntry(name=name, value=value) for name, value in settings.items()],
        )
        while len(view.image.live_nodes()) < plan.nodes:
            await asyncio.sleep(0.05)
        request = CreateTopicsRequest(topics=[topic])
        answer = await view.ask_controller(lambda controller: controller.CreateTopics(request, timeout=5.0))
        if answer.topics[0].result.error_code not in (0, 36):  # or it exists: an answer was lost
            self.world.violate(f"the topic cannot be created: {answer.topics[0].result.error_message}")
        while any(view.leader(place) is None for place in self.places):
            await asyncio.sleep(0.05)

    def _make_clients(self, view: ClusterView, environment: Environment, producer_ids: list[int]) -> None:
        kinds = (
            ("idempotent", -1, True),
            ("idempotent", -1, True),
            ("plain", -1, False),
            ("hasty", 1, False),
        )
        for number, (kind, acks, is_idempotent) in enumerate(kinds):
            name = f"{kind}-{number}"
            for place in self.places:
                chance = self.world.chance_of(f"{name}/{place}")
                producer = Producer(
                    self.world,
                    view,
                    self.history,
                    name,
                    place,
                    acks=acks,
                    in_flight=chance.choice((1, 3, 5)) if is_idempotent else 1,
                    producer_id=producer_ids[number] if is_idempotent else -1,
                    chance=chance,
                )
                self._producers.append(producer)
        for place in self.places:
            name = f"consumer-{place.partition}"
            self._consumers.append(
                Consumer(self.world, view, self.history, name, place, self.world.chance_of(name))
            )


def run_seed(
    seed: int,
    replication_factor: int = 1,
    *,
    without: Collection[int] = (),
    keeps_trace: bool = False,
) -> Outcome:
    """Run `seed`, `without` those of its faults that have these numbers, from 0."""
    began = time.perf_counter()
    plan = make_plan(seed, replication_factor)
    kept: tuple[Fault, ...] = tuple(
        fault for number, fault in enumerate(plan.faults) if number not in without
    )
    plan = replace(plan, faults=kept)
    world = World(seed, keeps_trace=keeps_trace)
    cluster = SimulatedCluster(world, plan)
    world.run(cluster.tell())
    read = sum(len(each) for each in cluster.history.read.values())
    return Outcome(
        seed,
        plan,
        tuple(world.violations),
        world.trace,
        world.now,
        time.perf_counter() - began,
        cluster.history.sent,
        cluster.history.acks,
        read,
    )
