"""The coordinator's log on a storage node, over real gRPC streams; the node itself keeps its log in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator.codec import encode_batches
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.offsets_log import StorageOffsetsLog
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage, node_key, partition_key, topic_key
from barnabas.records.batch import iterate_headers
from barnabas.rpc.connections import add_address, make_server
from barnabas.rpc.v1 import storage_pb2 as pb
from barnabas.rpc.v1.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord, TopicRecord
from barnabas.rpc.v1.storage_pb2_grpc import StorageServicer, add_StorageServicer_to_server

TOPIC_ID = b"t" * 16
EPOCH = 3


class OnePartition(StorageServicer):
    """One partition whose log starts at offset 5."""

    def __init__(self) -> None:
        self.batches: dict[int, bytes] = {}
        self.start = self.end = 5

    async def Append(self, frames: AsyncIterator[pb.AppendFrame], context: Any) -> AsyncIterator[Any]:
        await context.send_initial_metadata(())
        async for frame in frames:
            for request in frame.requests:
                (part,) = request.partitions
                assert request.acks == -1
                assert request.from_coordinator
                result = pb.PartitionAppendResult(base_offset=self.end)
                if part.leader_epoch != EPOCH:
                    result = pb.PartitionAppendResult(error_code=ErrorCode.fenced_leader_epoch)
                else:
                    self._store(part.records)
                answer = pb.AppendResult(correlation_id=request.correlation_id, partitions=[result])
                yield pb.AppendResultFrame(results=[answer])

    def _store(self, records: bytes) -> None:
        for position, header in iterate_headers(records):
            batch = bytearray(records[position : position + header.size_in_bytes])
            batch[:8] = self.end.to_bytes(8, "big")
            self.batches[self.end] = bytes(batch)
            self.end += header.last_offset_delta + 1

    async def Fetch(self, frames: AsyncIterator[pb.FetchFrame], context: Any) -> AsyncIterator[Any]:
        await context.send_initial_metadata(())
        async for frame in frames:
            for request in frame.requests:
                (part,) = request.partitions
                result = pb.PartitionFetchResult(records=self.batches.get(part.fetch_offset, b""))
                if part.current_leader_epoch != EPOCH:
                    result = pb.PartitionFetchResult(error_code=ErrorCode.fenced_leader_epoch)
                elif part.fetch_offset < self.start:
                    result = pb.PartitionFetchResult(error_code=ErrorCode.offset_out_of_range)
                answer = pb.FetchResult(correlation_id=request.correlation_id, partitions=[result])
                yield pb.FetchResultFrame(results=[answer])

    async def ListOffsets(self, request: pb.ListOffsetsRequest, _: Any) -> pb.ListOffsetsResponse:
        assert request.partitions[0].timestamp_ms == -2
        return pb.ListOffsetsResponse(results=[pb.ListOffsetsResult(offset=self.start)])

    async def OffsetForLeaderEpoch(self, *_: Any) -> Any:
        raise NotImplementedError


def image(address: str, leader: int = 1) -> MetadataImage:
    partition = PartitionRecord(topic_id=TOPIC_ID, partition=0, leader=leader, leader_epoch=EPOCH)
    topic = TopicRecord(name=GROUP_METADATA_TOPIC, topic_id=TOPIC_ID, partition_count=1, internal=True)
    return MetadataImage().apply(
        [
            MetadataRecord(key=node_key(1), node=NodeRecord(node_id=1, address=address)),
            MetadataRecord(key=partition_key(TOPIC_ID, 0), partition=partition),
            MetadataRecord(key=topic_key(GROUP_METADATA_TOPIC), topic=topic),
        ],
        1,
    )


@contextlib.asynccontextmanager
async def log_on(address: str, leader: int = 1) -> AsyncIterator[StorageOffsetsLog]:
    log = StorageOffsetsLog(
        lambda: image(address, leader), CoordinatorConfig(offsets_commit_timeout_ms=2_000)
    )
    try:
        yield log
    finally:
        await log.close()


@contextlib.asynccontextmanager
async def storage(path: Path) -> AsyncIterator[str]:
    server = make_server()
    add_StorageServicer_to_server(OnePartition(), server)
    address = add_address(server, f"unix:{path}/s")
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


def batches(offset: int) -> bytes:
    return encode_batches([OffsetRecord("g", "t", 0, OffsetAndMetadata(offset))] * 2, 1)


async def test_what_is_appended_is_read_from_the_log_s_start(tmp_path: Path) -> None:
    async with storage(tmp_path) as address, log_on(address) as log:
        offsets = await asyncio.gather(*(log.append(0, EPOCH, batches(n)) for n in range(3)))
        assert offsets == [5, 7, 9]
        chunks = [chunk async for chunk in log.read(0, EPOCH, end_offset=9)]
        assert [header.base_offset for chunk in chunks for _, header in iterate_headers(chunk)] == [5, 7]


async def test_an_older_epoch_is_refused(tmp_path: Path) -> None:
    async with storage(tmp_path) as address, log_on(address) as log:
        with pytest.raises(KafkaError) as refused:
            await log.append(0, EPOCH - 1, batches(1))
        assert refused.value.code is ErrorCode.fenced_leader_epoch
        with pytest.raises(KafkaError) as refused:
            [chunk async for chunk in log.read(0, EPOCH - 1, 9)]
        assert refused.value.code is ErrorCode.fenced_leader_epoch


async def test_nobody_to_write_to(tmp_path: Path) -> None:
    async with log_on(f"unix:{tmp_path}/nobody") as log:
        with pytest.raises(KafkaError) as unreachable:
            await log.append(0, EPOCH, batches(1))
        assert unreachable.value.code is ErrorCode.coordinator_not_available
    async with log_on("unused", leader=-1) as log:
        with pytest.raises(KafkaError) as leaderless:
            await log.append(0, EPOCH, batches(1))
        assert leaderless.value.code is ErrorCode.coordinator_not_available
        with pytest.raises(KafkaError) as missing:
            await log.append(1, EPOCH, batches(1))
        assert missing.value.code is ErrorCode.unknown_topic_or_partition
