"""A storage node without a controller: real logs in a directory, metadata by hand, gRPC on a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import Files, SystemFiles
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.kernel.threads import SystemThreads, Threads
from barnabas.links.network import Network
from barnabas.links.storage_messages import FetchedResult
from barnabas.messages.metadata_pb2 import (
    ClusterRecord,
    ConfigRecord,
    CoordinatorRecord,
    DeletedTopicRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    AppendResult,
    AppendTransaction,
    CoordinatorIdentity,
    FetchRequest,
    FetchResult,
    PartitionAppend,
    PartitionAppendResult,
    PartitionFetch,
    PartitionFetchResult,
)
from barnabas.metadata.image import (
    MetadataImage,
    config_key,
    coordinator_key,
    deleted_topic_key,
    partition_key,
    topic_key,
)
from barnabas.records.record import encode_batch
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage.config import StorageConfig
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.directories.record_checks import RecordChecks
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.fetching.reading import FetchReader
from barnabas.storage.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.describe_producers import DescribeProducersHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler
from barnabas.storage.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.replication.follower_session import ReplicationHandler
from barnabas.storage.servicer import StorageServicer
from barnabas.storage.transactions.verification import Verification
from barnabas.storage.upkeep.cleaning import Cleaning
from barnabas.storage.upkeep.schedules import Upkeep

NODE_ID = 1
CLUSTER_ID = "abcdefghijklmnopqrstuv"
NOW_MS = 1_700_000_000_000


def topic_records(
    name: str,
    topic_id: uuid.UUID,
    partitions: int = 1,
    *,
    leader: int = NODE_ID,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = (NODE_ID,),
    internal: bool = False,
    coordinator_id: str = "",
    coordinator_epoch: int = 0,
) -> list[MetadataRecord]:
    """The records of a topic whose partitions all have the same leader and replicas."""
    records = [
        MetadataRecord(
            key=partition_key(topic_id.bytes, index),
            partition=PartitionRecord(
                topic_id=topic_id.bytes,
                partition=index,
                leader=leader,
                leader_epoch=leader_epoch,
                replicas=replicas,
                isr=replicas,
                coordinator_id=coordinator_id,
                coordinator_epoch=coordinator_epoch,
            ),
        )
        for index in range(partitions)
    ]
    topic = TopicRecord(name=name, topic_id=topic_id.bytes, partition_count=partitions, internal=internal)
    return [*records, MetadataRecord(key=topic_key(name), topic=topic)]


def coordinator_record(name: str, incarnation: str) -> MetadataRecord:
    """The record of a live coordinator."""
    record = CoordinatorRecord(coordinator_id=name, incarnation_id=incarnation, address=name)
    return MetadataRecord(key=coordinator_key(name), coordinator=record)


def topic_config(name: str, **values: str) -> MetadataRecord:
    """The record of a topic's settings; underscores stand for dots."""
    dotted = {key.replace("_", "."): value for key, value in values.items()}
    return MetadataRecord(key=config_key(TOPIC_RESOURCE, name), config=ConfigRecord(values=dotted))


def batch(*values: bytes, timestamp: int = NOW_MS, **options: Any) -> bytes:
    """A record batch with one record per value."""
    return encode_batch([(timestamp, None, value, ()) for value in values], **options)


class StorageHarness:
    """Owner of one node's parts and of a client's connection to it."""

    def __init__(
        self,
        directory: Path,
        socket: Path,
        others: Sequence[Path] = (),
        *,
        node_id: int = NODE_ID,
        files: Files | None = None,
        threads: Threads | None = None,
        network: Network | None = None,
    ) -> None:
        """A node on `directory`, and on `others` if it is to have several."""
        self.directory = directory
        self.address = f"unix:{socket}"
        self.clock = ManualClock(NOW_MS)
        self.files = files or SystemFiles()
        self.node_id = node_id
        paths = [str(directory), *(str(each) for each in others)]
        pools = threads or SystemThreads()
        self.checks = RecordChecks(pools)
        self.lanes = {
            path: DirectoryLane(path, pools, checks=self.checks, is_alone=len(paths) == 1) for path in paths
        }
        self.directories = LogDirectories.open(
            paths,
            CLUSTER_ID,
            node_id,
            seeded_environment(clock=self.clock, files=self.files),
            producer_id_expiration_ms=86_400_000,
        )
        self.purgatory = FetchPurgatory()
        self.replicas = Replicas(
            node_id,
            CLUSTER_ID,
            self.directories,
            self.lanes,
            self.purgatory,
            self.clock,
        )
        self.reader = FetchReader(self.replicas, bytes_max=57_671_680)
        self.verification = Verification(self.replicas, network or GrpcNetwork())
        self.appends = AppendHandler(self.replicas, self.verification)
        self.fetches = FetchHandler(self.reader, self.purgatory, self.replicas.counts)
        self.connection = GrpcNetwork().connect_storage(self.address)
        self.revision = 0

    # -- metadata -----------------------------------------------------------------------------------------------

    def apply(self, *records: MetadataRecord) -> None:
        """A delta from the controller, behind a snapshot in which there was nothing yet."""
        if not self.revision and records:
            self.apply()
        self.revision += 1
        cluster = MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id=CLUSTER_ID))
        old = self.replicas.image
        new = old.apply([cluster, *records], self.revision)
        self.replicas.on_image(old, new)
        self.verification.on_image(old, new)

    def snapshot(self, *records: MetadataRecord, cluster_id: str = CLUSTER_ID, revision: int = 1_000) -> None:
        """A snapshot from the controller: `records` are all there are."""
        cluster = MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id=cluster_id))
        old, new = self.replicas.image, MetadataImage().apply([cluster, *records], revision)
        self.replicas.on_image(old, new)
        self.verification.on_image(old, new)

    def verify_no_transactions(self) -> None:
        """Records of transactions are taken although no coordinator knows of them."""
        values = {"transaction.partition.verification.enable": "false"}
        self.apply(MetadataRecord(key=config_key(BROKER_RESOURCE, ""), config=ConfigRecord(values=values)))

    def deletion(self, topic_id: uuid.UUID, name: str = "events") -> MetadataRecord:
        """That the topic was deleted."""
        said = DeletedTopicRecord(topic_id=topic_id.bytes, name=name)
        return MetadataRecord(key=deleted_topic_key(topic_id.bytes), deleted_topic=said)

    async def until_open(self) -> None:
        """Wait until the logs that the metadata asks for are open."""
        async with asyncio.timeout(20):
            while not self.replicas.is_settled:
                await asyncio.sleep(0)

    async def create_topic(self, name: str = "events", partitions: int = 1, **options: Any) -> uuid.UUID:
        topic_id = uuid.uuid4()
        self.apply(*topic_records(name, topic_id, partitions, **options))
        await self.until_open()
        return topic_id

    def replica(self, topic_id: uuid.UUID, index: int = 0) -> Replica:
        found = self.replicas.find(topic_id.bytes, index)
        assert found is not None
        return found

    # -- requests -----------------------------------------------------------------------------------------------

    def send_append(
        self,
        topic_id: uuid.UUID,
        records: bytes,
        *,
        index: int = 0,
        leader_epoch: int = -1,
        acks: int = -1,
        timeout_ms: int = 5_000,
        coordinator: tuple[str, str] | None = None,
        coordinator_epoch: int = 0,
        expected_log_end: int | None = None,
        marker_transaction_version: int = 0,
        transaction: AppendTransaction | None = None,
    ) -> asyncio.Future[AppendResult]:
        """`coordinator` is (id, incarnation id) of one that writes."""
        item = PartitionAppend(
            topic_id=topic_id.bytes,
            partition=index,
            leader_epoch=leader_epoch,
            records=records,
            coordinator_epoch=coordinator_epoch,
            expected_log_end=expected_log_end,
            marker_transaction_version=marker_transaction_version,
        )
        request = AppendRequest(partitions=[item], acks=acks, timeout_ms=timeout_ms, transaction=transaction)
        if coordinator is not None:
            name, incarnation = coordinator
            request.coordinator.CopyFrom(CoordinatorIdentity(coordinator_id=name, incarnation_id=incarnation))
        return self.connection.appends.send(request, len(records))

    async def append(self, topic_id: uuid.UUID, records: bytes, **options: Any) -> PartitionAppendResult:
        async with asyncio.timeout(20):
            result = await self.send_append(topic_id, records, **options)
        return result.partitions[0]

    def fetch_request(
        self, topic_id: uuid.UUID, offset: int = 0, *, index: int = 0, max_wait_ms: int = 0, **options: Any
    ) -> FetchRequest:
        """A fetch of one partition; options named like fields of the partition go there."""
        of_partition = {
            name: options.pop(name)
            for name in ("current_leader_epoch", "last_fetched_epoch")
            if name in options
        }
        item = PartitionFetch(
            topic_id=topic_id.bytes,
            partition=index,
            fetch_offset=offset,
            max_bytes=options.pop("partition_max_bytes", 1 << 20),
            **{"current_leader_epoch": -1, "last_fetched_epoch": -1} | of_partition,
        )
        fields = {"min_bytes": 1, "max_bytes": 1 << 20} | options
        return FetchRequest(partitions=[item], max_wait_ms=max_wait_ms, **fields)

    async def fetch(self, topic_id: uuid.UUID, offset: int = 0, **options: Any) -> PartitionFetchResult:
        result = await self.answer(
            self.connection.fetches.send(self.fetch_request(topic_id, offset, **options))
        )
        return result.partitions[0]

    async def answer(self, future: asyncio.Future[FetchedResult]) -> FetchResult:
        """The result of a fetch, with the records in their fields."""
        async with asyncio.timeout(20):
            fetched = await future
        result = FetchResult(correlation_id=fetched.correlation_id)
        for fields, records in fetched.partitions:
            part = result.partitions.add()
            part.CopyFrom(fields)
            part.records = bytes(records)
        return result

    async def until_waiting(self, count: int) -> None:
        """Wait until `count` fetches are in the purgatory."""
        async with asyncio.timeout(20):
            while len(self.purgatory) != count:
                await asyncio.sleep(0)


def make_cleaning(node: StorageHarness) -> Cleaning:
    return Cleaning(node.replicas, node.directories, node.lanes, node.clock)


def make_upkeep(node: StorageHarness) -> Upkeep:
    config = StorageConfig(node_id=1, log_dirs=("/unused",), controllers=("127.0.0.1:1",))
    return Upkeep(config, node.replicas, node.directories, node.lanes, node.clock)


async def hand_nothing_over() -> None:
    """There is no other node."""


def make_servicer(node: StorageHarness) -> StorageServicer:
    return StorageServicer(
        node.appends,
        node.fetches,
        ReplicationHandler(node.replicas, node.replicas.isr_changes),
        ListOffsetsHandler(node.replicas),
        OffsetForLeaderEpochHandler(node.replicas),
        DeleteRecordsHandler(node.replicas),
        AlterReplicaLogDirsHandler(node.replicas, node.lanes),
        DescribeLogDirsHandler(node.replicas, node.lanes, node.files),
        DescribeProducersHandler(node.replicas),
    )


@contextlib.asynccontextmanager
async def run_node(
    directory: Path,
    socket: Path,
    others: Sequence[Path] = (),
    *,
    crash: bool = False,
    network: Network | None = None,
) -> AsyncIterator[StorageHarness]:
    """A node on `directory` and `others`; at the end it stops in order, or with `crash` as if it were killed.

    `network` is how it reaches transaction coordinators.
    """
    harness = StorageHarness(directory, socket, others, network=network)
    await harness.replicas.recover()
    server = GrpcNetwork().listen(harness.address)
    await server.serve_storage(make_servicer(harness), harness.replicas.counts.streams)
    following = asyncio.create_task(harness.replicas.run())
    try:
        yield harness
    finally:
        await harness.connection.close()
        await server.stop(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await harness.verification.questions.close()
        for lane in harness.lanes.values():
            lane.close()
            await asyncio.to_thread(lane.join)
        harness.checks.close()
        if crash:
            harness.directories.abandon()
        else:
            harness.directories.close(harness.replicas.high_watermarks())
