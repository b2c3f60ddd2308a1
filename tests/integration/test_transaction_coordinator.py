"""The coordinator of transactions in real processes, asked as a gateway asks it; its markers are read in the logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
from barnabas.messages import controller_pb2, coordinator_pb2, storage_pb2
from barnabas.messages import transactions_pb2 as pb
from barnabas.metadata.image import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from barnabas.records.batch import iterate_headers
from barnabas.records.control import decode_marker
from barnabas.records.record import encode_batch
from barnabas.rpc.network import GrpcNetwork

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 60.0
ID: Final = "payments"


class Links:
    """Owns a link to each process of a cluster that a transaction has to do with."""

    def __init__(self, cluster: Any, nodes: int) -> None:
        network = GrpcNetwork()
        self.transactions = network.connect_transactions(_address(cluster, "coordinator-1"))
        self.groups = network.connect_coordinator(_address(cluster, "coordinator-1"))
        self.controller = network.connect_controller(_address(cluster, "controller"))
        self.nodes = {
            number: network.connect_storage(_address(cluster, f"storage-{number}"))
            for number in range(1, nodes + 1)
        }

    async def close(self) -> None:
        for link in (self.transactions, self.groups, self.controller, *self.nodes.values()):
            await link.close()


def _address(cluster: Any, service: str) -> str:
    """Where the service listens, which may share its process with others."""
    process = cluster.service(service).name
    lines = (cluster.data_dir / "run" / f"{process}.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    return settings["listen.address"]


@asynccontextmanager
async def linked(cluster: Any, nodes: int = 1) -> AsyncIterator[Links]:
    links = Links(cluster, nodes)
    try:
        yield links
    finally:
        await links.close()


class Topic(NamedTuple):
    """A topic by name and id."""

    name: str
    topic_id: bytes


async def create_topic(links: Links, name: str, *nodes: int) -> Topic:
    """A topic with a partition on each of `nodes`. The one of transactions is made as a gateway makes it."""
    assignments = [
        controller_pb2.ReplicaAssignment(partition=index, node_ids=[node]) for index, node in enumerate(nodes)
    ]
    topic = controller_pb2.NewTopic(
        name=name,
        partition_count=-1,
        replication_factor=-1,
        assignments=assignments,
        internal=name in INTERNAL_TOPICS,
    )
    created = await links.controller.CreateTopics(controller_pb2.CreateTopicsRequest(topics=[topic]))
    assert created.topics[0].result.error_code == 0, created
    return Topic(name, created.topics[0].topic_id)


async def asked(call: Callable[..., Any], request: Any, code_of: Callable[[Any], int]) -> Any:
    """The answer without an error, once there is one: what passes is waited for."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            answer = await call(request, timeout=5)
        except LinkError as error:
            answer, code = error, ErrorCode.network_exception
        else:
            code = ErrorCode(code_of(answer))
        if code is ErrorCode.none:
            return answer
        assert time.monotonic() < deadline, f"{code}: {answer}"
        await asyncio.sleep(0.02)


async def begin(links: Links, topic: Topic, partitions: int, transactional_id: str = ID) -> tuple[int, int]:
    """Open a transaction with all partitions of the topic; its producer's id and epoch."""
    request = pb.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    given = await asked(links.transactions.InitProducerId, request, lambda answer: answer.error_code)
    item = pb.TransactionPartitions(
        transactional_id=transactional_id,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        transaction_version=2,
        topics=[pb.TransactionTopic(name=topic.name, partitions=range(partitions))],
    )
    await asked(
        links.transactions.AddPartitionsToTxn,
        pb.AddPartitionsToTxnRequest(transactions=[item]),
        lambda answer: max(answer.transactions[0].error_codes),
    )
    return given.producer_id, given.producer_epoch


async def write(links: Links, topic: Topic, partition: int, node: int, producer: tuple[int, int]) -> None:
    """One record of the transaction."""
    batch = encode_batch(
        [(int(time.time() * 1000), None, b"paid", ())],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    request = storage_pb2.AppendRequest(
        acks=-1,
        timeout_ms=5_000,
        transaction=storage_pb2.AppendTransaction(transactional_id=ID, adds_partitions=True),
        partitions=[
            storage_pb2.PartitionAppend(
                topic_id=topic.topic_id, partition=partition, leader_epoch=-1, records=batch
            )
        ],
    )
    result = await links.nodes[node].appends.send(request, len(batch), 10)
    assert result.partitions[0].error_code == 0, result


async def end(links: Links, producer: tuple[int, int], *, committed: bool) -> pb.EndTxnResponse:
    request = pb.EndTxnRequest(
        transactional_id=ID,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
        transaction_version=2,
    )
    return await links.transactions.EndTxn(request, timeout=10)


async def markers(links: Links, topic: Topic, partition: int, node: int) -> list[tuple[bool, int, int]]:
    """The markers in a partition: whether it commits, the producer's epoch, the coordinator's."""
    item = storage_pb2.PartitionFetch(
        topic_id=topic.topic_id,
        partition=partition,
        max_bytes=1 << 20,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )
    request = storage_pb2.FetchRequest(partitions=[item], max_wait_ms=0, min_bytes=0, max_bytes=1 << 20)
    (result,) = (await links.nodes[node].fetches.send(request, 0, 10)).partitions
    found = []
    for position, header in iterate_headers(result.records):
        if header.is_control:
            marker = decode_marker(memoryview(result.records)[position:])
            assert marker is not None
            found.append((marker.committed, header.producer_epoch, marker.coordinator_epoch))
    return found


async def state(links: Links) -> str:
    request = pb.DescribeTransactionsRequest(transactional_ids=[ID])
    answer = await asked(
        links.transactions.DescribeTransactions, request, lambda found: found.transactions[0].error_code
    )
    name: str = answer.transactions[0].state
    return name


async def until(holds: Callable[[], Any], wanted: object, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while (found := await holds()) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("committed", [True, False])
async def test_the_end_of_a_transaction_is_in_all_of_its_partitions(
    make_cluster: Callable[..., Any], committed: bool
) -> None:
    cluster = make_cluster()
    async with linked(cluster) as links:
        await create_topic(links, TRANSACTION_STATE_TOPIC, 1)
        topic = await create_topic(links, "orders", 1, 1)
        producer = await begin(links, topic, 2)
        await write(links, topic, 0, 1, producer)
        answer = await end(links, producer, committed=committed)
        assert answer.error_code == 0
        assert (answer.producer_id, answer.producer_epoch) == (producer[0], producer[1] + 1)
        await until(lambda: state(links), "CompleteCommit" if committed else "CompleteAbort")
        for partition in range(2):
            assert await markers(links, topic, partition, 1) == [(committed, producer[1] + 1, 0)]


async def test_what_is_decided_is_told_by_the_next_coordinator(make_cluster: Callable[..., Any]) -> None:
    """The coordinator dies after it answered, and before the partition could be told."""
    flags = ("--separate", "--override", "transaction.state.log.replication.factor=1")
    cluster = make_cluster(nodes=2, flags=flags)
    async with linked(cluster, nodes=2) as links:
        await create_topic(links, TRANSACTION_STATE_TOPIC, 1)
        topic = await create_topic(links, "orders", 2)
        producer = await begin(links, topic, 1)
        await write(links, topic, 0, 2, producer)
        cluster.pause("storage-2")
        assert (await end(links, producer, committed=True)).error_code == 0
        assert await state(links) == "PrepareCommit"
        cluster.kill("coordinator-1")
        cluster.resume("storage-2")
        await until(lambda: state(links), "CompleteCommit")
        told = await markers(links, topic, 0, 2)
        assert {(committed, epoch) for committed, epoch, _ in told} == {(True, producer[1] + 1)}
        assert told[-1][2] > 0, "the next coordinator's epoch"


async def commit_offset(links: Links, producer: tuple[int, int], offset: int) -> None:
    """An offset of group g in orders-0, as part of the transaction, which the group's coordinator adds to it."""
    partition = coordinator_pb2.OffsetCommitPartition(
        partition=0, committed_offset=offset, committed_leader_epoch=-1
    )
    request = coordinator_pb2.TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=-1,
        adds_partitions=True,
        topics=[coordinator_pb2.OffsetCommitTopic(name="orders", partitions=[partition])],
    )
    await asked(
        links.groups.TxnOffsetCommit, request, lambda answer: answer.topics[0].partitions[0].error_code
    )


async def stable_offset(links: Links) -> int:
    """The group's offset in orders-0; a Kafka error below -1."""
    request = coordinator_pb2.OffsetFetchRequest(
        group_id="g",
        topics=[coordinator_pb2.OffsetFetchTopic(name="orders", partitions=[0])],
        require_stable=True,
        member_epoch=-1,
    )
    answer = await links.groups.OffsetFetch(request, timeout=10)
    partition = answer.topics[0].partitions[0]
    return -1_000 - partition.error_code if partition.error_code else partition.committed_offset


async def test_offsets_count_once_the_transaction_is_complete(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    async with linked(cluster) as links:
        await create_topic(links, TRANSACTION_STATE_TOPIC, 1)
        await create_topic(links, GROUP_METADATA_TOPIC, 1, 1)
        topic = await create_topic(links, "orders", 1)
        producer = await begin(links, topic, 1)
        for committed, offset, counts in ((True, 5, 5), (False, 9, 5)):
            await commit_offset(links, producer, offset)
            assert await stable_offset(links) == -1_000 - ErrorCode.unstable_offset_commit
            answer = await end(links, producer, committed=committed)
            assert answer.error_code == 0
            await until(lambda: state(links), "CompleteCommit" if committed else "CompleteAbort")
            assert await stable_offset(links) == counts, "at once"
            producer = answer.producer_id, answer.producer_epoch
