"""One coordinator of transactions without its server, the metadata that it sees, and those whom it tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import cast

from log_in_memory import LogInMemory

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.metrics import RuntimeMetrics
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.coordinator.transactions.codec import decode_batch
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.places import Place
from barnabas.coordinator.transactions.metrics import TransactionMetrics
from barnabas.coordinator.transactions.servicer import TransactionsServicer
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import transactions_pb2 as pb
from barnabas.messages.metadata_pb2 import (
    CoordinatorRecord,
    DeletedTopicRecord,
    FeatureRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    TopicRecord,
)
from barnabas.metadata.features import TRANSACTION_VERSION
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
    coordinator_key,
    deleted_topic_key,
    feature_key,
    node_key,
    partition_key,
    topic_key,
)
from barnabas.metadata.producer_ids import ProducerIds

FIRST_PRODUCER = 1_000
COMMITTED = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit")
DECIDED = COMMITTED[:-1]
"""What the log says of a transaction that is committed, and of one whose partitions are being told."""
NEVER_MS = 10**9


class World:
    """The metadata, changed step by step as the controller does, and told to the coordinators at once."""

    def __init__(self, *, version: int = 2) -> None:
        self.image = MetadataImage()
        self.nodes: list[TransactionNode] = []
        self._made = 0
        feature = FeatureRecord(name=TRANSACTION_VERSION, level=version)
        self.see(MetadataRecord(key=feature_key(TRANSACTION_VERSION), feature=feature))
        for number in (1, 2, 3):
            self.node(number)

    def see(self, *records: MetadataRecord) -> None:
        old, self.image = self.image, self.image.apply(records, self.image.revision + 1)
        for node in self.nodes:
            node.coordinator.on_image(old, self.image)

    def node(self, number: int, *, fenced: bool = False) -> None:
        record = NodeRecord(node_id=number, address=f"node-{number}:1", fenced=fenced)
        self.see(MetadataRecord(key=node_key(number), node=record))

    def coordinators(self, *names: str) -> None:
        self.see(
            *(
                MetadataRecord(
                    key=coordinator_key(name),
                    coordinator=CoordinatorRecord(
                        coordinator_id=name, incarnation_id=f"{name}-1", address=f"{name}:1"
                    ),
                )
                for name in names
            )
        )

    def topic(self, name: str, *leaders: int, owner: str = "") -> None:
        """A new topic whose partitions have these leaders."""
        self._made += 1
        topic_id = self._made.to_bytes(16, "big")
        self.see(
            *(
                self._partition(topic_id, index, leader=leader, coordinator_id=owner)
                for index, leader in enumerate(leaders)
            ),
            MetadataRecord(
                key=topic_key(name),
                topic=TopicRecord(
                    name=name,
                    topic_id=topic_id,
                    partition_count=len(leaders),
                    internal=name in INTERNAL_TOPICS,
                ),
            ),
        )

    def lead(self, name: str, index: int, leader: int) -> None:
        """Somebody else leads a partition."""
        topic = self.image.topics[name]
        epoch = topic.partitions[index].leader_epoch + 1
        self.see(self._partition(topic.topic_id, index, leader=leader, leader_epoch=epoch))

    def own(self, name: str, owner: str, epoch: int, index: int = 0) -> None:
        """Somebody else owns a partition of an internal topic."""
        topic = self.image.topics[name]
        leader = topic.partitions[index].leader
        self.see(
            self._partition(
                topic.topic_id, index, leader=leader, coordinator_id=owner, coordinator_epoch=epoch
            )
        )

    def delete(self, name: str) -> None:
        """Somebody deleted a topic."""
        topic = self.image.topics[name]
        said = DeletedTopicRecord(topic_id=topic.topic_id, name=name)
        self.see(
            *self._without(name),
            MetadataRecord(key=deleted_topic_key(topic.topic_id), deleted_topic=said),
        )

    def lose(self, name: str) -> None:
        """The metadata do not have a topic any more, and do not say why."""
        self.see(*self._without(name))

    def start_over(self) -> None:
        """What comes next is the same, as a snapshot: nobody knows what changed."""
        old = self.image
        self.image = MetadataImage().apply(list(old.records.values()), old.revision + 1)
        for node in self.nodes:
            node.coordinator.on_image(old, self.image)

    def _without(self, name: str) -> list[MetadataRecord]:
        topic = self.image.topics[name]
        keys = [partition_key(topic.topic_id, index) for index in range(len(topic.partitions))]
        return [MetadataRecord(key=key) for key in (topic_key(name), *keys)]

    @staticmethod
    def _partition(topic_id: bytes, index: int, **fields: object) -> MetadataRecord:
        record = PartitionRecord(topic_id=topic_id, partition=index, **fields)  # type: ignore[arg-type]
        return MetadataRecord(key=partition_key(topic_id, index), partition=record)


class FakePost:
    """Takes markers in place of storage nodes and owners of offsets."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Marker]] = []
        """Place, partition, marker: in the order in which they were sent."""
        self.codes: defaultdict[str, list[ErrorCode]] = defaultdict(list)
        """What a partition answers next; NONE when nothing is left."""
        self.frozen: dict[str, asyncio.Event] = {}
        """Places that take what is sent, and do not answer before they thaw."""
        self.fails = False
        self.is_here = False
        """Whether all places are in this process: what would be told is told at once."""
        self.given_up = 0
        """Sendings whose answer nobody wanted any more."""

    async def send(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        names = [f"{topic}-{index}" for topic, index in partitions]
        self.sent += [(place.id, name, marker) for name in names]
        if self.fails:
            raise RuntimeError("a bug")
        gate = self.frozen.get(place.id)
        if gate is not None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        return [self.codes[name].pop(0) if self.codes[name] else ErrorCode.none for name in names]

    def send_at_once(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        if self.fails:
            raise RuntimeError("a bug")
        if not self.is_here or place.is_coordinator or place.id in self.frozen:
            return []
        told = [each for each in partitions if not self.codes[f"{each.topic}-{each.partition}"]]
        self.sent += [(place.id, f"{topic}-{index}", marker) for topic, index in told]
        return told

    def freeze(self, place: str) -> None:
        self.frozen[place] = asyncio.Event()

    def thaw(self, place: str) -> None:
        self.frozen.pop(place).set()

    def told(self, partition: str) -> list[str]:
        """Who was sent markers for a partition."""
        return [place for place, name, _ in self.sent if name == partition]


class FakeProducerIds:
    """Ids that are at hand, or not."""

    def __init__(self) -> None:
        self.has_some = True
        self.comes = True
        """Whether the controller gives a block to those who wait for it."""
        self.drawn = 0

    def draw(self) -> int:
        if not self.has_some:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, "no producer id is at hand")
        self.drawn += 1
        return FIRST_PRODUCER + self.drawn - 1

    async def wait_for_block(self) -> bool:
        self.has_some = self.comes
        return self.comes


class TransactionNode:
    """One process with a coordinator of transactions, which knows the ids a, b and so on of one partition."""

    def __init__(
        self,
        name: str,
        world: World,
        log: LogInMemory,
        config: CoordinatorConfig | None = None,
        post: FakePost | None = None,
    ) -> None:
        self.clock = ManualClock()
        environment = seeded_environment(clock=self.clock)
        self.registry = environment.registry
        self.post = post or FakePost()
        self.post.is_here = log.is_here
        self.producer_ids = FakeProducerIds()
        metrics = TransactionMetrics(self.registry, RuntimeMetrics(self.registry))
        self.coordinator = TransactionCoordinator(
            config or CoordinatorConfig(coordinator_id=name),
            environment,
            log,
            metrics,
            lambda: world.image,
            cast(ProducerIds, self.producer_ids),
            self.post,
        )
        self.calls = TransactionsServicer(self.coordinator)
        world.nodes.append(self)
        self.coordinator.on_image(MetadataImage(), world.image)

    def state(self) -> PartitionState:
        (runtime,) = self.coordinator.partitions.runtimes()
        return runtime.state

    async def init(self, transactional_id: str = "a", producer_id: int = -1, epoch: int = -1) -> str:
        """The answer as `id/epoch`, or the error."""
        answer = await self.calls.InitProducerId(
            pb.InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )
        return _shown(answer)

    async def add(
        self,
        *names: str,
        transactional_id: str = "a",
        producer_id: int = FIRST_PRODUCER,
        epoch: int = 0,
        verify: bool = False,
        version: int = 2,
        wait_ms: int = 0,
    ) -> str:
        item = an_addition(
            *names,
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            verify=verify,
            version=version,
        )
        item.wait_ms = wait_ms
        answer = await self.calls.AddPartitionsToTxn(pb.AddPartitionsToTxnRequest(transactions=[item]))
        return ",".join(ErrorCode(code).name for code in answer.transactions[0].error_codes)

    async def end(
        self,
        transactional_id: str = "a",
        producer_id: int = FIRST_PRODUCER,
        epoch: int = 0,
        *,
        committed: bool = True,
        version: int = 2,
    ) -> str:
        answer = await self.calls.EndTxn(
            pb.EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=committed,
                transaction_version=version,
            )
        )
        return _shown(answer)

    async def open(self, *names: str, transactional_id: str = "a") -> int:
        """A transaction with these partitions, `t-0` and so on; its producer's id."""
        producer_id, epoch = (await self.init(transactional_id)).split("/")
        added = await self.add(
            *names, transactional_id=transactional_id, producer_id=int(producer_id), epoch=int(epoch)
        )
        assert set(added.split(",")) <= {"none"}, added
        return int(producer_id)

    async def describe(self, transactional_id: str = "a") -> str:
        """State, and the partitions that are named."""
        request = pb.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = (await self.calls.DescribeTransactions(request)).transactions
        if found.error_code:
            return ErrorCode(found.error_code).name
        named = [f"{topic.name}-{index}" for topic in found.topics for index in topic.partitions]
        return " ".join([found.state, *named])


def an_addition(
    *names: str,
    transactional_id: str = "a",
    producer_id: int = FIRST_PRODUCER,
    epoch: int = 0,
    verify: bool = False,
    version: int = 2,
) -> pb.TransactionPartitions:
    pairs = [name.rsplit("-", 1) for name in names]
    return pb.TransactionPartitions(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify,
        transaction_version=version,
        topics=[pb.TransactionTopic(name=topic, partitions=[int(index)]) for topic, index in pairs],
    )


def _shown(answer: pb.InitProducerIdResponse | pb.EndTxnResponse) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    return f"{answer.producer_id}/{answer.producer_epoch}"


def states(log: LogInMemory) -> list[str]:
    """What the log says, in order, of all ids; not the tombstones that mark a loading."""
    records = [record for batch in log.batches.get(0, []) for record in decode_batch(memoryview(batch))]
    return [str(record.value.state) for record in records if record.value is not None]


def a_world(*, version: int = 2, owner: str = "a") -> World:
    """Topic t with partitions led by nodes 1, 2, 1; `owner` owns all of transactions and offsets."""
    world = World(version=version)
    world.coordinators("a", "b")
    world.topic("t", 1, 2, 1)
    world.topic(GROUP_METADATA_TOPIC, 3, owner=owner)
    world.topic(TRANSACTION_STATE_TOPIC, 3, owner=owner)
    return world


@contextlib.asynccontextmanager
async def running(*nodes: TransactionNode) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(node.coordinator.run()) for node in nodes]
    await until_loaded(*nodes)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


async def until_loaded(*nodes: TransactionNode) -> None:
    for _ in range(1000):
        if all(node.coordinator.partitions.is_loaded() for node in nodes):
            return
        await asyncio.sleep(0)
    raise AssertionError("a partition is not loaded")


async def settle() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until_complete(log: LogInMemory, *wanted: str) -> None:
    """Return once the log says what is wanted: one transaction that is committed, where nothing else is said."""
    for _ in range(1_000):
        if states(log) == list(wanted or COMMITTED):
            return
        await asyncio.sleep(0)
    raise AssertionError(states(log))
