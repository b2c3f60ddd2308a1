"""One coordinator process without its gRPC server: what the tests of its partitions drive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from log_in_memory import LogInMemory

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.metrics import GroupMetrics
from barnabas.coordinator.groups.servicer import CoordinatorServicer
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.metadata_pb2 import DeletedTopicRecord, MetadataRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    MetadataImage,
    deleted_topic_key,
    partition_key,
    topic_key,
)

TOPIC_ID = b"o" * 16


class Questions:
    """Fakes the coordinators of transactions: each question is answered once the test says so, or at once."""

    def __init__(self) -> None:
        self.asked: list[TransactionQuestion] = []
        self.answer: ErrorCode | LinkError = ErrorCode.none
        self.gate: asyncio.Event | None = None
        self.parts: set[TransactionQuestion] = set()
        """Of which yes is said at once."""

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        return question in self.parts

    async def ask(self, question: TransactionQuestion) -> ErrorCode:
        self.asked.append(question)
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, LinkError):
            raise self.answer
        return self.answer


class Node:
    """One coordinator process."""

    def __init__(
        self,
        name: str,
        log: LogInMemory,
        config: CoordinatorConfig | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        environment = seeded_environment(clock=self.clock)
        self.registry = environment.registry
        config = config or CoordinatorConfig(coordinator_id=name, group_initial_rebalance_delay_ms=0)
        self.questions = Questions()
        self.coordinator = GroupCoordinator(
            config, environment, log, GroupMetrics(self.registry), self.questions
        )
        self.calls = CoordinatorServicer(self.coordinator)
        self.image = MetadataImage()

    def see(
        self,
        owner: str,
        epoch: int = 0,
        partitions: int = 1,
        *,
        topics: tuple[str, ...] = (),
        deleted: tuple[str, ...] = (),
        leader_epoch: int = 0,
    ) -> None:
        """Receive the metadata in which `owner` coordinates everything under coordinator epoch `epoch`."""
        records = [
            MetadataRecord(
                key=partition_key(TOPIC_ID, index),
                partition=PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition=index,
                    leader_epoch=leader_epoch,
                    coordinator_id=owner,
                    coordinator_epoch=epoch,
                ),
            )
            for index in range(partitions)
        ]
        name = GROUP_METADATA_TOPIC
        topic = TopicRecord(name=name, topic_id=TOPIC_ID, partition_count=partitions, internal=True)
        records.append(MetadataRecord(key=topic_key(name), topic=topic))
        for name in topics:
            records.append(
                MetadataRecord(key=topic_key(name), topic=TopicRecord(name=name, topic_id=name.encode() * 16))
            )
        for name in deleted:
            said = DeletedTopicRecord(topic_id=name.encode() * 16, name=name)
            records.append(MetadataRecord(key=deleted_topic_key(said.topic_id), deleted_topic=said))
        old, self.image = self.image, MetadataImage().apply(records, self.image.revision + 1)
        self.coordinator.on_image(old, self.image)

    def state(self) -> PartitionState:
        (runtime,) = self.coordinator.partitions.runtimes()
        return runtime.state

    async def commit(
        self,
        offset: int,
        *,
        generation: int = -1,
        member_id: str = "",
        group: str = "g",
        topic: str = "t",
        topic_id: bytes = b"",
        partition: int = 0,
        metadata: str = "",
    ) -> ErrorCode:
        row = pb.OffsetCommitPartition(
            partition=partition, committed_offset=offset, committed_leader_epoch=-1, metadata=metadata
        )
        request = pb.OffsetCommitRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            retention_time_ms=-1,
            topics=[pb.OffsetCommitTopic(name=topic, topic_id=topic_id, partitions=[row])],
        )
        response = await self.calls.OffsetCommit(request)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def fetch_all(self, *, stable: bool = True) -> list[int] | ErrorCode:
        """All offsets of the group that are told."""
        request = pb.OffsetFetchRequest(group_id="g", all_topics=True, require_stable=stable, member_epoch=-1)
        response = await self.calls.OffsetFetch(request)
        if response.error_code:
            return ErrorCode(response.error_code)
        rows = [each for topic in response.topics for each in topic.partitions]
        return [each.committed_offset for each in rows if not each.error_code]

    async def fetch(self, *, group: str = "g", stable: bool = False) -> int | ErrorCode:
        request = pb.OffsetFetchRequest(
            group_id=group,
            topics=[pb.OffsetFetchTopic(name="t", partitions=[0])],
            require_stable=stable,
            member_epoch=-1,
        )
        response = await self.calls.OffsetFetch(request)
        if response.error_code:
            return ErrorCode(response.error_code)
        result = response.topics[0].partitions[0]
        return ErrorCode(result.error_code) if result.error_code else result.committed_offset

    async def commit_in_transaction(
        self,
        offset: int,
        *,
        producer: tuple[int, int] = (7, 0),
        group: str = "g",
        topic: str = "t",
        topic_id: bytes = b"",
        metadata: str = "",
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        adds: bool = False,
    ) -> ErrorCode:
        partition = pb.OffsetCommitPartition(
            partition=0, committed_offset=offset, committed_leader_epoch=-1, metadata=metadata
        )
        request = pb.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            adds_partitions=adds,
            topics=[pb.OffsetCommitTopic(name=topic, topic_id=topic_id, partitions=[partition])],
        )
        response = await self.calls.TxnOffsetCommit(request)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def complete(
        self,
        *,
        committed: bool = True,
        producer: tuple[int, int] = (7, 0),
        coordinator_epoch: int = 0,
        version: int = 0,
        partition: int = 0,
    ) -> ErrorCode:
        request = pb.CompleteTransactionRequest(
            partition=partition,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        return ErrorCode((await self.calls.CompleteTransaction(request)).error_code)

    async def delete_offset(self, topic: str = "t", group: str = "g") -> ErrorCode:
        request = pb.OffsetDeleteRequest(
            group_id=group, topics=[pb.OffsetFetchTopic(name=topic, partitions=[0])]
        )
        return ErrorCode((await self.calls.OffsetDelete(request)).error_code)

    async def join(
        self, member_id: str = "", session: int = 10_000, group: str = "g"
    ) -> pb.JoinGroupResponse:
        request = pb.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[pb.GroupProtocol(name="range")],
        )
        return await self.calls.JoinGroup(request)

    async def sync(self, group: str, member_id: str, generation: int = 1) -> pb.SyncGroupResponse:
        assignment = pb.SyncGroupAssignment(member_id=member_id, assignment=b"a")
        request = pb.SyncGroupRequest(
            group_id=group, member_id=member_id, generation_id=generation, assignments=[assignment]
        )
        return await self.calls.SyncGroup(request)

    async def heartbeat(self, member_id: str, generation: int, group: str = "g") -> ErrorCode:
        request = pb.HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation)
        return ErrorCode((await self.calls.Heartbeat(request)).error_code)


def newer_heartbeat(
    epoch: int, member_id: str = "m", group_id: str = "g"
) -> pb.ConsumerGroupHeartbeatRequest:
    return pb.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=pb.SubscribedTopics(names=["t"]),
        topic_partitions=pb.OwnedPartitions(),
    )


async def until_writing(*nodes: Node) -> None:
    await until(lambda: all(node.state() is PartitionState.SERVING for node in nodes))


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


@contextlib.asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(node.coordinator.partitions.run()) for node in nodes]
    await until(lambda: all(node.coordinator.partitions.is_loaded() for node in nodes))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
