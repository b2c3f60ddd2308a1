"""The log that group state is written to and read from: partitions of __consumer_offsets on storage nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import grpc.aio

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.tracing import current_traceparent
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage
from barnabas.records.batch import iterate_headers
from barnabas.rpc.coalesced import StreamBroken, Unreachable
from barnabas.rpc.fetch_frames import PartitionFetched
from barnabas.rpc.storage_streams import StorageConnection
from barnabas.rpc.v1.storage_pb2 import (
    AppendRequest,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionAppend,
    PartitionFetch,
)

ALL_IN_SYNC_REPLICAS: Final = -1
"""Kafka's acks=all."""
EARLIEST_TIMESTAMP: Final = -2
"""ListOffsets' name for the log's first offset."""


class OffsetsLog(Protocol):
    """What a partition's owner needs of the log. Everything raises KafkaError with the storage node's code, or
    COORDINATOR_NOT_AVAILABLE when no storage node can be reached."""

    async def append(self, partition: int, leader_epoch: int, records: bytes) -> int:
        """Append whole batches and return the first one's offset once all in-sync replicas have them.

        Refused with FENCED_LEADER_EPOCH when the partition has a newer epoch.
        """
        ...

    def read(self, partition: int, leader_epoch: int, end_offset: int) -> AsyncIterator[bytes]:
        """Whole batches, in order, from the log's first offset to at least `end_offset`, as far as committed."""
        ...


class StorageOffsetsLog:
    """Owns the connections to the storage nodes that lead partitions of __consumer_offsets."""

    def __init__(self, image: Callable[[], MetadataImage], config: CoordinatorConfig) -> None:
        self._image = image
        self._config = config
        self._connections: dict[str, StorageConnection] = {}

    async def append(self, partition: int, leader_epoch: int, records: bytes) -> int:
        topic_id, storage = self._leader_of(partition)
        timeout_ms = self._config.offsets_commit_timeout_ms
        request = AppendRequest(
            partitions=[
                PartitionAppend(
                    topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, records=records
                )
            ],
            acks=ALL_IN_SYNC_REPLICAS,
            timeout_ms=timeout_ms,
            from_coordinator=True,
            traceparent=current_traceparent(),
        )
        try:
            async with asyncio.timeout((timeout_ms + limits.APPEND_GRACE_MS) / 1000):
                result = await storage.appends.send(request, len(records))
        except (StreamBroken, Unreachable) as error:
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
        except TimeoutError as error:
            raise KafkaError(ErrorCode.request_timed_out, f"{storage.address} does not answer") from error
        (answer,) = result.partitions
        _raise_for(answer.error_code, answer.error_message)
        return answer.base_offset

    async def read(self, partition: int, leader_epoch: int, end_offset: int) -> AsyncIterator[bytes]:
        next_offset = 0
        while next_offset < end_offset:
            result = await self._fetch(partition, leader_epoch, next_offset)
            if result.fields.error_code == ErrorCode.offset_out_of_range:
                # Records below the log's start were deleted: go on from where it starts.
                start = await self._log_start(partition, leader_epoch)
                if start <= next_offset:
                    raise KafkaError(ErrorCode.offset_out_of_range, f"offset {next_offset} cannot be read")
                next_offset = start
                continue
            _raise_for(result.fields.error_code, "")
            for _, header in iterate_headers(result.records):
                next_offset = header.next_offset
            if result.records:
                yield bytes(result.records)

    async def close(self) -> None:
        """Close all connections; what waits on them fails."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def _fetch(self, partition: int, leader_epoch: int, offset: int) -> PartitionFetched:
        topic_id, storage = self._leader_of(partition)
        buffer_bytes = self._config.offsets_load_buffer_size
        request = FetchRequest(
            partitions=[
                PartitionFetch(
                    topic_id=topic_id,
                    partition=partition,
                    fetch_offset=offset,
                    max_bytes=buffer_bytes,
                    current_leader_epoch=leader_epoch,
                    last_fetched_epoch=-1,
                )
            ],
            max_wait_ms=limits.FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=buffer_bytes,
        )
        try:
            async with asyncio.timeout(
                (limits.FETCH_WAIT_MS + self._config.offsets_commit_timeout_ms) / 1000
            ):
                result = await storage.fetches.send(request)
        except (StreamBroken, Unreachable) as error:
            raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
        except TimeoutError as error:
            raise KafkaError(ErrorCode.request_timed_out, f"{storage.address} does not answer") from error
        return result.partitions[0]

    async def _log_start(self, partition: int, leader_epoch: int) -> int:
        topic_id, storage = self._leader_of(partition)
        request = ListOffsetsRequest(
            partitions=[
                ListOffsetsPartition(
                    topic_id=topic_id,
                    partition=partition,
                    current_leader_epoch=leader_epoch,
                    timestamp_ms=EARLIEST_TIMESTAMP,
                )
            ]
        )
        try:
            timeout_seconds = self._config.offsets_commit_timeout_ms / 1000
            response = await storage.stub.ListOffsets(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise KafkaError(ErrorCode.coordinator_not_available, error.details() or "") from error
        _raise_for(response.results[0].error_code, "")
        return response.results[0].offset

    def _leader_of(self, partition: int) -> tuple[bytes, StorageConnection]:
        image = self._image()
        topic = image.topics.get(GROUP_METADATA_TOPIC)
        if topic is None or partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"no {GROUP_METADATA_TOPIC}-{partition}")
        connection = self.connection_to(topic.partitions[partition].leader)
        if connection is None:
            raise KafkaError(
                ErrorCode.coordinator_not_available, f"{GROUP_METADATA_TOPIC}-{partition} has no leader"
            )
        return topic.topic_id, connection

    def connection_to(self, node_id: int) -> StorageConnection | None:
        """The connection to a storage node; None when no such node is registered."""
        node = self._image().nodes.get(node_id)
        if node is None:
            return None
        connection = self._connections.get(node.address)
        if connection is None:
            connection = StorageConnection(node.address, reads_for_clients=False)
            self._connections[node.address] = connection
        return connection


def _raise_for(code: int, message: str) -> None:
    if code != ErrorCode.none:
        raise KafkaError(ErrorCode(code), message)
