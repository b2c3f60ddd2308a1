"""One run of one seed: a cluster, its clients, its faults, and what is to be true in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from administrator import Administrator, leftovers
from apart_plan import LAST_COORDINATOR, owners_are_apart
from brief_topic import BRIEF, BriefTopic
from checks import KnowsCommits, Watch, check_logs, check_terms, describe_replicas, image_of
from clients import VERSIONS, Producer
from compacted_topic import COMPACTED, CompactedTopic
from consumer_group_lives import MIGRATING
from consumer_groups import MigratingGroup
from consumers import Consumer, Reader, SessionConsumer
from fault_kinds import FAULTS_SECONDS
from faults import Faults
from group_history import GroupHistory
from groups import GROUP, Member
from history import TOPIC, History, Place
from kafka_client import KafkaClient, create_topic
from machines import (
    KAFKA_PORT,
    BrokerMachine,
    ClientMachine,
    ControllerMachine,
    CoordinatingMachine,
    CoordinatorMachine,
    GatewayMachine,
    Machine,
    NodeMachine,
)
from onlooker import Onlooker
from run_plans import RunPlans, make_plans
from trace_of_run import Trace
from transactions import Transactions
from world import World

from barnabas.kernel.environment import Environment
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.settings.replication import RACK_AWARE

SESSIONS: Final = 0.6
"""In how many runs one consumer reads all partitions, in fetch sessions, and not each partition by itself."""

CARELESS: Final = 0.25
"""In how many runs one producer asks for no answer (acks=0), and not for the leader's (acks=1)."""

START_SECONDS_MAX: Final = 20.0
"""Within which a cluster on which nothing fails is there."""

OF_NODES: Final = {
    # Logs that are compacted, __consumer_offsets above all, are so again and again.
    "log.roll.ms": "500",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
}

LAST_FAULT_SECONDS_MAX: Final = 90.0
"""By then each fault is over: some wait for a moment in which others have all records."""

RECOVERY_SECONDS_MAX: Final = 25.0
"""Within which everything serves again once nothing fails any more: a controller's lease, the grace for services after
a takeover, and the recovery of logs are in it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    plans: RunPlans
    violations: tuple[str, ...]
    trace: Trace
    virtual_seconds: float
    real_seconds: float
    sent: int
    acknowledged: int
    read: int
    cleanings: int
    """Of logs that are compacted."""

    @property
    def is_well(self) -> bool:
        return not self.violations


def rack_of(node_id: int) -> str:
    """Where the node is, in runs that have racks."""
    return f"rack-{node_id}"


def owners(image: MetadataImage) -> set[str]:
    """The coordinators that own the groups and the transactions."""
    topics = (image.topics.get(name) for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))
    known = {topic.partitions[0].coordinator_id for topic in topics if topic is not None}
    return known - {""}


class SimulatedCluster:
    """Owner of the machines of one run."""

    def __init__(self, world: World, plans: RunPlans) -> None:
        self.world = world
        self.plan = plan = plans.cluster
        self.history = History(world)
        self.group_history = GroupHistory(world)
        self.controllers = [
            ControllerMachine(world, number + 1, plan.rebalance_seconds) for number in range(plan.controllers)
        ]
        settings = {**OF_NODES, "replica.lag.time.max.ms": str(plan.lag_ms_max)}
        if plan.is_flushed:
            settings["log.flush.interval.messages"] = "1"  # of __consumer_offsets, too
        if plan.reads_nearby:
            settings["replica.selector.class"] = RACK_AWARE
        make_node = NodeMachine if plan.gateways else BrokerMachine
        self.nodes = [
            make_node(world, number + 1, plan.controllers, settings, plan.log_directories)
            for number in range(plan.nodes + plan.joining)
        ]
        for each in self.nodes:
            each.is_away = each.node_id > plan.nodes
            each.rack = rack_of(each.node_id) if plan.reads_nearby else ""
        self.gateways = [
            GatewayMachine(world, number + 1, plan.controllers) for number in range(plan.gateways)
        ]
        self.coordinators = self._coordinators()
        self.clients = ClientMachine(world, "clients", self._be_clients)
        self.machines: dict[str, Machine] = {each.name: each for each in (*self.services, self.clients)}
        self.places = [Place(TOPIC, number) for number in range(plan.partitions)]
        admin = KafkaClient(world, "admin", [TOPIC], self._bootstrap)
        self.administrator = Administrator(world, admin, self.history, self.machines, self.places)
        self._producers: list[Producer] = []
        self.brief_topic = self._brief_topic() if plan.has_brief_topic else None
        self.compacted_topic = self._compacted_topic() if plan.compaction.has_topic else None
        self.transactions = (
            None if plans.transactions is None else Transactions(world, plans.transactions, self._bootstrap)
        )
        self.migrating_group = (
            None
            if plans.group is None
            else MigratingGroup(world, plans.group, self._bootstrap, self.coordinators)
        )
        self._readers: list[Reader] = []
        self._members: list[Member] = []
        self._is_calm = asyncio.Event()
        self._topics_are_there = asyncio.Event()

    @property
    def _bootstrap(self) -> list[str]:
        return [f"{each.name}:{KAFKA_PORT}" for each in self.gateways or self.nodes]

    @property
    def services(self) -> list[Machine]:
        coordinators = () if self.plan.hosts_coordinators else self.coordinators
        return [*self.controllers, *self.nodes, *self.gateways, *coordinators]

    def _coordinators(self) -> list[CoordinatingMachine]:
        plan = self.plan
        if not plan.hosts_coordinators:
            numbers = range(1, plan.coordinators + 1)
            return [CoordinatorMachine(self.world, number, plan.controllers) for number in numbers]
        brokers = [each for each in self.nodes if isinstance(each, BrokerMachine)]
        for each in brokers:
            each.coordinates = True
        return [*brokers]

    async def tell(self) -> None:
        """The whole story."""
        world = self.world
        if owners_are_apart(world.seed):
            last = self.machines[LAST_COORDINATOR]
            last.is_away = True
            world.loop.create_task(self._start_last(last), name="last coordinator")
        for machine in self.machines.values():
            machine.start()
        coordinators = {each.name: each for each in self.coordinators}
        histories: dict[str, KnowsCommits] = {GROUP: self.group_history}
        if self.migrating_group is not None:
            histories[MIGRATING] = self.migrating_group.history
        watching = Watch(world, self.nodes, coordinators, histories).run()
        watch = world.loop.create_task(watching, name="watch")
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._topics_are_there.wait()
        except TimeoutError:
            world.violate(f"the cluster does not start: {self._unmet()}")
            return
        begins_at = world.now
        faults = Faults(
            world, self.machines, self.administrator, self.brief_topic, self.history, self._readers
        )
        disturbing = []
        if self.transactions is not None:
            disturb = self.transactions.disturb(faults.start_again, begins_at)
            disturbing.append(world.loop.create_task(disturb, name="faults of transactions"))
        if self.migrating_group is not None:
            disturb = self.migrating_group.disturb(faults.start_again, begins_at)
            disturbing.append(world.loop.create_task(disturb, name="faults of the migrating group"))
        try:
            async with asyncio.timeout(LAST_FAULT_SECONDS_MAX):
                await faults.run(list(self.plan.faults), begins_at)
                await asyncio.gather(*disturbing)
        except TimeoutError:
            world.violate(f"{LAST_FAULT_SECONDS_MAX} s after the first fault not all are over")
            return
        await asyncio.sleep(max(0.0, begins_at + FAULTS_SECONDS - world.now))
        world.trace.say("fault", "nothing fails any more")
        await self._have_logs_read_again(faults)
        self._is_calm.set()
        await self._recover()
        if watch.done():
            watch.result()  # it ends with an error only
        watch.cancel()
        check_terms(world)
        check_logs(world, self.plan, self.history, self.nodes, self.places)
        if self.brief_topic is not None:
            check_logs(world, self.plan, self.brief_topic.history, self.nodes, self.brief_topic.places)
        if self.compacted_topic is not None:
            self.compacted_topic.check(self.nodes)
        if self.transactions is not None and not world.violations:
            self.transactions.check(self.nodes, coordinators)

    async def _start_last(self, machine: Machine) -> None:
        """When another one owns the groups."""
        while not owners(image_of(self.world)):
            await asyncio.sleep(0.02)
        machine.is_away = False
        machine.start()

    async def _have_logs_read_again(self, faults: Faults) -> None:
        """What coordinators know is to be what their log says."""
        if not self.plan.hosts_coordinators:
            for each in self.coordinators:
                await faults.start_again(each.name, 0.0)
            return
        # A broker is no more than the others can spare, and who takes over reads the log, too.
        gives_up_at = self.world.now + RECOVERY_SECONDS_MAX
        for owner in sorted(owners(image_of(self.world))):
            while not await faults.start_again(owner, 0.0) and self.world.now < gives_up_at:
                await asyncio.sleep(0.05)

    async def _recover(self) -> None:
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                while self._unmet():
                    self._start_what_needs_it()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            unmet = self._unmet()
            for line in describe_replicas(self.nodes):
                self.world.trace.say("check", line)
            self.world.violate(f"{RECOVERY_SECONDS_MAX} s after the last fault: {unmet}")

    def _start_what_needs_it(self) -> None:
        for node in self.nodes:
            if node.needs_a_start:
                node.kill()
                node.start()

    def _unmet(self) -> list[str]:
        """What is still missing before everything serves."""
        unmet = [f"{machine.name}: {condition}" for machine in self.services for condition in machine.unmet()]
        if not self._topics_are_there.is_set():
            return [*unmet, "no topics"]
        unmet += self.administrator.unmet()
        more = [each for each in (self.brief_topic, self.compacted_topic) if each is not None]
        for topic in more:
            unmet += topic.unmet()
        unmet += [f"{each.name} waits for {each.place}" for each in self._producers if not each.is_done]
        unmet += [
            f"{each.name} does not know what is committed" for each in self._members if not each.is_done
        ]
        if unmet:
            return unmet
        image = image_of(self.world)
        unmet += leftovers(self.nodes, image)
        for place in (*self.places, *(place for topic in more for place in topic.places)):
            record = image.topics[place.topic].partitions[place.partition]
            if record.leader < 0:
                unmet.append(f"{place} has no leader")
            if set(record.isr) != set(record.replicas):
                unmet.append(f"{place} has the ISR {list(record.isr)} of {list(record.replicas)}")
        unmet += self._unread(self.history, self._readers)
        for topic in more:
            unmet += self._unread(topic.history, topic.readers)
        if self.transactions is not None:
            unmet += self.transactions.unmet(self.nodes, {each.name: each for each in self.coordinators})
        if self.migrating_group is not None:
            unmet += self.migrating_group.unmet()
        return unmet

    def _unread(self, history: History, readers: Iterable[Reader]) -> list[str]:
        unread = []
        for each in readers:
            promised = history.promised(each.place, is_one_enough=self.plan.is_one_enough)
            end = max(promised, default=-1) + 1
            if each.position < end:
                unread.append(f"{each.name} is at {each.position} of {end} in {each.place}")
        return unread

    # -- in the clients' process --------------------------------------------------------------------------------

    async def _be_clients(self, environment: Environment) -> None:
        del environment  # what they need of it is the world's
        until = self.world.now + FAULTS_SECONDS + 0.5
        async with asyncio.TaskGroup() as tasks:
            admin = self.administrator.client
            tasks.create_task(admin.follow(), name="metadata of the administrator")
            await self._create_topics(admin)
            if self.plan.is_administered:
                tasks.create_task(self.administrator.run(), name="administrator")
            self._make_producers(tasks, until)
            self._make_consumers(tasks)
            self._make_members(tasks, until)
            if self.brief_topic is not None:
                tasks.create_task(self.brief_topic.client.follow(), name="metadata of the brief topic")
                tasks.create_task(self.brief_topic.run(until), name="brief topic")
            if self.compacted_topic is not None:
                tasks.create_task(self.compacted_topic.client.follow(), name=f"metadata of {COMPACTED}")
                tasks.create_task(self.compacted_topic.run(until), name="compacted topic")
            if self.transactions is not None:
                tasks.create_task(self.transactions.run(self._new_topic(), until), name="transactions")
            if self.migrating_group is not None:
                working = self.migrating_group.run(self._new_topic(), until, self._is_calm)
                tasks.create_task(working, name="migrating group")
            self._topics_are_there.set()

    def _client(self, name: str, tasks: asyncio.TaskGroup) -> KafkaClient:
        client = KafkaClient(self.world, name, [TOPIC], self._bootstrap)
        tasks.create_task(client.follow(), name=f"metadata of {name}")
        return client

    async def _create_topics(self, client: KafkaClient) -> None:
        while len(client.brokers) < self.plan.nodes:
            client.refresh()
            await asyncio.sleep(0.05)
        problem = await create_topic(
            client, {"name": TOPIC, "num_partitions": self.plan.partitions, **self._new_topic()}
        )
        if problem:
            self.world.violate(f"the topic cannot be created: {problem}")
        while any(client.leader(place) is None for place in self.places):
            await asyncio.sleep(0.05)

    def _brief_topic(self) -> BriefTopic:
        client = KafkaClient(self.world, f"client of {BRIEF}", [BRIEF], self._bootstrap)
        partitions = self.world.chance_of(BRIEF).choice((1, 2))
        return BriefTopic(self.world, client, {"num_partitions": partitions, **self._new_topic()})

    def _compacted_topic(self) -> CompactedTopic:
        client = KafkaClient(self.world, f"client of {COMPACTED}", [COMPACTED], self._bootstrap)
        return CompactedTopic(
            self.world, client, self._new_topic(), has_bold_producer=self.plan.compaction.has_bold_producer
        )

    def _new_topic(self) -> dict[str, Any]:
        plan = self.plan
        settings = {"segment.ms": str(plan.segment_ms), "min.insync.replicas": str(plan.min_insync_replicas)}
        if plan.is_flushed:
            settings["flush.messages"] = "1"
        return {
            "replication_factor": plan.replication_factor,
            "configs": [{"name": name, "value": value} for name, value in settings.items()],
        }

    def _make_producers(self, tasks: asyncio.TaskGroup, until: float) -> None:
        plain, eager = ("plain", -1, (1,)), ("eager", -1, (3,))
        hasty, careless = ("hasty", 1, (1,)), ("careless", 0, (1,))
        kinds = (
            ("idempotent", -1, (1, 3, 5)),
            ("idempotent", -1, (1, 3, 5)),
            eager if self.plan.is_administered and self.world.chance_of("kinds").random() < 0.5 else plain,
            careless if self.world.chance_of("acks").random() < CARELESS else hasty,
        )
        if self.transactions is not None:
            kinds = kinds[1:3]  # a seed is to take no longer for the others
        for number, (kind, acks, in_flight) in enumerate(kinds):
            name = f"{kind}-{number}"
            client, versions = self._client(name, tasks), self.world.chance_of(name).choice(VERSIONS)
            for place in self.places:
                chance = self.world.chance_of(f"{name}/{place}")
                producer = Producer(
                    self.world,
                    client,
                    self.history,
                    name,
                    place,
                    acks=acks,
                    in_flight=chance.choice(in_flight) if len(in_flight) > 1 else in_flight[0],
                    versions=versions,
                    chance=chance,
                )
                self._producers.append(producer)
                tasks.create_task(producer.run(until, is_idempotent=kind == "idempotent"), name=name)

    def _make_consumers(self, tasks: asyncio.TaskGroup) -> None:
        chance = self.world.chance_of("consumers")
        if self.plan.is_administered and chance.random() < SESSIONS:
            name = "consumer"
            client = self._client(name, tasks)
            self._readers += [Reader(self.world, client, self.history, name, place) for place in self.places]
            consumer = SessionConsumer(self.world, client, self._readers, chance.choice(VERSIONS), chance)
            tasks.create_task(consumer.run(), name=name)
            return
        for place in self.places:
            name = f"consumer-{place.partition}"
            chance, client = self.world.chance_of(name), self._client(name, tasks)
            reader = Reader(self.world, client, self.history, name, place)
            alone = Consumer(self.world, client, reader, chance.choice(VERSIONS), chance)
            if self.plan.reads_nearby:
                alone.rack = rack_of(chance.randint(1, self.plan.nodes))
            self._readers.append(reader)
            tasks.create_task(alone.run(), name=name)

    def _make_members(self, tasks: asyncio.TaskGroup, until: float) -> None:
        for number in range(self.plan.members):
            client = self._client(f"member-{number}", tasks)
            chance = self.world.chance_of(f"{client.name}/group")
            member = Member(self.world, client, self.group_history, self.places, chance)
            self._members.append(member)
            tasks.create_task(member.run(until, self._is_calm), name=member.name)
        if self.plan.has_onlooker:
            client = self._client("onlooker", tasks)
            onlooker = Onlooker(self.world, client, self.group_history, self.places, self._bootstrap)
            tasks.create_task(onlooker.look_on(until), name=onlooker.name)


def run_seed(
    seed: int,
    replication_factor: int = 1,
    *,
    without: Collection[int] = (),
    keeps_trace: bool = False,
) -> Outcome:
    """Run `seed`, `without` those of its faults that have these numbers, from 0."""
    began = time.process_time()
    plans = make_plans(seed, replication_factor).without(without)
    world = World(seed, keeps_trace=keeps_trace)
    cluster = SimulatedCluster(world, plans)
    world.run(cluster.tell())
    read = sum(len(each) for each in cluster.history.read.values())
    return Outcome(
        seed,
        plans,
        tuple(world.violations),
        world.trace,
        world.now,
        time.process_time() - began,
        cluster.history.sent,
        cluster.history.acks,
        read,
        world.trace.cleanings,
    )
