"""The coordinator's log on a storage node, over real gRPC streams; the node itself keeps its log in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import encode_record
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.coordinator.runtime.topic_log import StorageTopicLog
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import Unreachable
from barnabas.links.storage_messages import PartitionFetched
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages import storage_pb2 as pb
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage, node_key, partition_key, topic_key
from barnabas.records.batch import iterate_headers
from barnabas.records.record import encode_batch
from barnabas.rpc.network import GrpcNetwork

TOPIC_ID = b"t" * 16
EPOCH = 3
LEADER_EPOCH = 8
COORDINATOR = "c1"
INCARNATION = "this process"
LATE = int(ErrorCode.request_timed_out)


class OnePartition:
    """One partition whose log starts at offset 5."""

    def __init__(self) -> None:
        self.appends = self.fetches = self
        self.batches: dict[int, bytes] = {}
        self.start = self.end = 5
        self.late_reads = 0
        """Reads to come that the disk is too slow for."""
        self.producers = pb.PartitionProducers()

    def handle(self, request: pb.AppendRequest, answer: Callable[[pb.AppendResult], None]) -> None:
        (part,) = request.partitions
        assert request.acks == -1
        who = request.coordinator
        assert (who.coordinator_id, who.incarnation_id) == (COORDINATOR, INCARNATION)
        assert part.leader_epoch == LEADER_EPOCH
        result = pb.PartitionAppendResult(base_offset=self.end)
        if part.coordinator_epoch != EPOCH:
            result = pb.PartitionAppendResult(error_code=ErrorCode.not_coordinator)
        elif part.HasField("expected_log_end") and part.expected_log_end != self.end:
            result = pb.PartitionAppendResult(error_code=ErrorCode.offset_out_of_range)
        else:
            self._store(part.records)
        answer(pb.AppendResult(correlation_id=request.correlation_id, partitions=[result]))

    def _store(self, records: bytes) -> None:
        for position, header in iterate_headers(records):
            batch = bytearray(records[position : position + header.size_in_bytes])
            batch[:8] = self.end.to_bytes(8, "big")
            self.batches[self.end] = bytes(batch)
            self.end += header.last_offset_delta + 1

    def take_from_peer(self, answer: Callable[..., None], _: Any, *, is_client: bool) -> OnePartition:
        assert not is_client
        self._answer = answer
        return self

    def take(self, request: pb.FetchRequest) -> None:
        (part,) = request.partitions
        assert part.current_leader_epoch == LEADER_EPOCH
        result = pb.PartitionFetchResult(high_watermark=self.end)
        records = self.batches.get(part.fetch_offset, b"")
        if self.late_reads:
            self.late_reads -= 1
            result, records = pb.PartitionFetchResult(error_code=LATE, high_watermark=-1), b""
        elif part.fetch_offset < self.start:
            result, records = pb.PartitionFetchResult(error_code=ErrorCode.offset_out_of_range), b""
        self._answer(request, [PartitionFetched(result, records)], len(records))

    async def serve_woken(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing waits."""

    async def ListOffsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        offset = {-2: self.start, -1: self.end}[request.partitions[0].timestamp_ms]
        return pb.ListOffsetsResponse(results=[pb.ListOffsetsResult(offset=offset)])

    async def DescribeProducers(self, request: pb.DescribeProducersRequest) -> pb.DescribeProducersResponse:
        (asked,) = request.partitions
        assert (asked.topic_id, asked.partition) == (TOPIC_ID, 0)
        return pb.DescribeProducersResponse(results=[self.producers])


def image(address: str, leader: int = 1, *, fenced: bool = False) -> MetadataImage:
    partition = PartitionRecord(topic_id=TOPIC_ID, partition=0, leader=leader, leader_epoch=LEADER_EPOCH)
    topic = TopicRecord(name=GROUP_METADATA_TOPIC, topic_id=TOPIC_ID, partition_count=1, internal=True)
    return MetadataImage().apply(
        [
            MetadataRecord(key=node_key(1), node=NodeRecord(node_id=1, address=address, fenced=fenced)),
            MetadataRecord(key=partition_key(TOPIC_ID, 0), partition=partition),
            MetadataRecord(key=topic_key(GROUP_METADATA_TOPIC), topic=topic),
        ],
        1,
    )


@contextlib.asynccontextmanager
async def log_on(current: MetadataImage) -> AsyncIterator[StorageTopicLog]:
    log = StorageTopicLog(
        GROUP_METADATA_TOPIC,
        lambda: current,
        CoordinatorConfig(coordinator_id=COORDINATOR, offsets_commit_timeout_ms=2_000),
        INCARNATION,
        GrpcNetwork(),
    )
    try:
        yield log
    finally:
        await log.close()


@contextlib.asynccontextmanager
async def storage(path: Path, node: OnePartition | None = None) -> AsyncIterator[str]:
    server = GrpcNetwork().listen(f"unix:{path}/s")
    served: Any = node or OnePartition()
    await server.serve_storage(served, StorageStreamCounts())
    try:
        yield server.address
    finally:
        await server.stop(None)


def batches(offset: int) -> bytes:
    record = encode_record(OffsetRecord("g", "t", 0, OffsetAndMetadata(offset)))
    return encode_batch([(1, *record, ())] * 2)


async def test_what_is_appended_is_read_from_the_log_s_start(tmp_path: Path) -> None:
    async with storage(tmp_path) as address, log_on(image(address)) as log:
        offsets = await asyncio.gather(*(log.append(0, EPOCH, batches(n), 5 + 2 * n) for n in range(3)))
        assert offsets == [5, 7, 9]
        chunks = [chunk async for chunk in log.read(0, end_offset=9)]
        assert [header.base_offset for chunk in chunks for _, header in iterate_headers(chunk)] == [5, 7]


async def test_what_is_fenced_is_refused(tmp_path: Path) -> None:
    async with storage(tmp_path) as address, log_on(image(address)) as log:
        with pytest.raises(KafkaError) as refused:
            await log.append(0, EPOCH - 1, batches(1), None)
        assert refused.value.code is ErrorCode.not_coordinator
        with pytest.raises(KafkaError) as moved:
            await log.append(0, EPOCH, batches(1), 4)
        assert moved.value.code is ErrorCode.offset_out_of_range
        assert await log.append(0, EPOCH, batches(1), 5) == 5
        assert await log.committed_end(0) == 7


async def test_reading_ends_where_compaction_left_nothing(tmp_path: Path) -> None:
    node = OnePartition()
    async with storage(tmp_path, node) as address, log_on(image(address)) as log:
        for end in (5, 7, 9):
            await log.append(0, EPOCH, batches(end), end)
        del node.batches[7], node.batches[9]
        assert len([chunk async for chunk in log.read(0, end_offset=11)]) == 1


async def test_a_slow_disk_is_waited_for_and_nothing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MIN", 1)
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MAX", 2)
    node = OnePartition()
    async with storage(tmp_path, node) as address, log_on(image(address)) as log:
        for end in (5, 7, 9):
            await log.append(0, EPOCH, batches(end), end)
        node.late_reads = 4
        seen = []
        async for chunk in log.read(0, end_offset=11):
            seen += [header.base_offset for _, header in iterate_headers(chunk)]
            node.late_reads = 2
        assert seen == [5, 7, 9]


async def test_the_leader_is_asked_for_its_producers(tmp_path: Path) -> None:
    node = OnePartition()
    node.producers = pb.PartitionProducers(
        producers=[
            pb.ProducerDescription(
                producer_id=7, producer_epoch=3, coordinator_epoch=-1, current_transaction_start_offset=0
            ),
            pb.ProducerDescription(
                producer_id=8, producer_epoch=0, coordinator_epoch=2, current_transaction_start_offset=-1
            ),
        ]
    )
    async with storage(tmp_path, node) as address, log_on(image(address)) as log:
        assert await log.producers(0) == [
            LogProducer(Producer(7, 3), -1, is_open=True),
            LogProducer(Producer(8, 0), 2, is_open=False),
        ]
        node.producers = pb.PartitionProducers(error_code=ErrorCode.not_leader_or_follower)
        with pytest.raises(KafkaError) as moved:
            await log.producers(0)
        assert moved.value.code is ErrorCode.not_leader_or_follower
    async with log_on(image(f"unix:{tmp_path}/nobody")) as log:
        with pytest.raises(KafkaError) as unreachable:
            await log.producers(0)
        assert unreachable.value.code is ErrorCode.coordinator_not_available


async def test_nobody_to_write_to(tmp_path: Path) -> None:
    async with log_on(image(f"unix:{tmp_path}/nobody")) as log:
        with pytest.raises(KafkaError) as unreachable:
            await log.append(0, EPOCH, batches(1), None)
        assert unreachable.value.code is ErrorCode.coordinator_not_available
    async with log_on(image("unused", leader=-1)) as log:
        with pytest.raises(KafkaError) as leaderless:
            await log.append(0, EPOCH, batches(1), None)
        assert leaderless.value.code is ErrorCode.coordinator_not_available
        with pytest.raises(KafkaError) as missing:
            await log.append(1, EPOCH, batches(1), None)
        assert missing.value.code is ErrorCode.unknown_topic_or_partition


async def test_a_fenced_node_is_not_written_to(tmp_path: Path) -> None:
    node = OnePartition()
    async with storage(tmp_path, node) as address, log_on(image(address, fenced=True)) as log:
        with pytest.raises(KafkaError) as fenced:
            await log.append(0, EPOCH, batches(1), 5)
        assert fenced.value.code is ErrorCode.coordinator_not_available
        assert log.link_to(1) is None
        assert node.end == 5


async def test_connections_to_nodes_that_are_gone_are_closed(tmp_path: Path) -> None:
    async with storage(tmp_path) as address, log_on(image(address)) as log:
        await log.append(0, EPOCH, batches(1), 5)
        connection = log.link_to(1)
        assert connection is not None
        log.on_image(image(address), image(address, fenced=True))
        assert log.link_to(1) is connection  # fenced is not gone
        log.on_image(image(address), image("elsewhere:1"))
        await asyncio.sleep(0)
        with pytest.raises(Unreachable):
            await connection.appends.send(pb.AppendRequest())
        # Back at the same address, it is reached over a new connection.
        assert await log.append(0, EPOCH, batches(1), 7) == 7
        assert log.link_to(1) is not connection
