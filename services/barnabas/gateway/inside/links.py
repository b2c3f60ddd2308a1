"""The gateway's connections to the other services, opened as they are needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from barnabas.kernel.errors import KafkaError
from barnabas.links.near_storage import StorageBeside
from barnabas.links.storage_link import StorageLink
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc import limits
from barnabas.rpc.connections import open_channel
from barnabas.rpc.storage_streams import StorageConnection
from barnabas.rpc.stream_counts import StorageStreamCounts
from barnabas.rpc.v1.coordinator_pb2_grpc import GroupCoordinatorStub

if TYPE_CHECKING:
    from barnabas.rpc.v1.coordinator_pb2_grpc import GroupCoordinatorAsyncStub


class Links:
    """Owns one StorageConnection per storage node and one channel per coordinator.

    A node or coordinator that comes back at another address gets a new connection; those that are gone are closed, and
    what waits for them fails. So does what waits for a node that was fenced, for nobody knows when it speaks again.
    """

    def __init__(
        self,
        metadata: MetadataSubscription,
        stream_counts: StorageStreamCounts,
        beside: StorageBeside | None = None,
        node_bytes_max: int = limits.STREAM_UNANSWERED_BYTES_MAX,
    ) -> None:
        """`beside` is the storage node in this process, if there is one: it is called, not connected to.

        `node_bytes_max` is what may wait for one storage node before further records for it are refused.
        """
        self._metadata = metadata
        self._stream_counts = stream_counts
        self._beside = beside
        self._node_bytes_max = node_bytes_max
        self._storage: dict[int, StorageConnection] = {}
        self._coordinators: dict[str, tuple[grpc.aio.Channel, GroupCoordinatorAsyncStub]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        metadata.on_change(self._on_metadata)

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def storage(self, node_id: int) -> StorageLink | None:
        """The connection to a storage node, or None when no such node is registered or it is fenced."""
        node = self.image.nodes.get(node_id)
        if node is None or node.fenced:
            return None
        if self._beside is not None and node_id == self._beside.node_id:
            return self._beside.link
        connection = self._storage.get(node_id)
        if connection is None or connection.address != node.address:
            connection = self._storage[node_id] = StorageConnection(
                node.address, self._stream_counts, append_bytes_max=self._node_bytes_max
            )
        return connection

    def coordinator_for_group(self, group_id: str) -> GroupCoordinatorAsyncStub:
        """The coordinator that owns the group.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) while the offsets topic has no partition or the partition has no
        coordinator.
        """
        topic = self.image.topics.get(GROUP_METADATA_TOPIC)
        if topic is None or not topic.partitions:
            raise KafkaError(NOBODY_COORDINATES)
        record = topic.partitions[partition_for_group(group_id, len(topic.partitions))]
        coordinator = self.image.coordinators.get(record.coordinator_id)
        if coordinator is None:
            raise KafkaError(NOBODY_COORDINATES)
        return self.coordinator_at(coordinator.address)

    def coordinator_at(self, address: str) -> GroupCoordinatorAsyncStub:
        """The coordinator at a gRPC address."""
        if address not in self._coordinators:
            channel = open_channel(address)
            self._coordinators[address] = (channel, GroupCoordinatorStub(channel))
        return self._coordinators[address][1]

    def _on_metadata(self, _: MetadataImage, new: MetadataImage) -> None:
        for node_id, connection in list(self._storage.items()):
            node = new.nodes.get(node_id)
            if node is None or node.fenced or node.address != connection.address:
                del self._storage[node_id]
                self._close_later(connection.close())
        addresses = {coordinator.address for coordinator in new.coordinators.values()}
        for address in self._coordinators.keys() - addresses:
            channel, _stub = self._coordinators.pop(address)
            self._close_later(channel.close(grace=None))

    def _close_later(self, closing: object) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(closing)  # type: ignore[call-overload]
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for connection in self._storage.values():
            await connection.close()
        for channel, _ in self._coordinators.values():
            await channel.close(grace=None)
        await asyncio.gather(*self._closing, return_exceptions=True)
