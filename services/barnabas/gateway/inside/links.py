"""The gateway's links to the other services, opened as they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from barnabas.kernel.errors import KafkaError
from barnabas.links.local_storage import LocalStorage
from barnabas.links.storage_link import AnswerRoom, StorageLink
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.metadata.coordinators import coordinator_of
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES
from barnabas.metadata.subscription import MetadataSubscription

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink
    from barnabas.links.network import Network
    from barnabas.links.transactions_link import TransactionsLink


class Links:
    """Owns one link per storage node, and per coordinator one to each of its services.

    A node or coordinator that comes back at another address gets a new link; those that are gone are closed, and
    what waits for them fails. So does what waits for a node that was fenced, for nobody knows when it speaks again.
    """

    def __init__(
        self,
        metadata: MetadataSubscription,
        network: Network,
        stream_counts: StorageStreamCounts,
        local: LocalStorage | None = None,
        node_bytes_max: int | None = None,
        answer_room: AnswerRoom | None = None,
    ) -> None:
        """`local` is the storage node in this process, if there is one: it is called, not connected to.

        `node_bytes_max` is what may wait for one storage node before further records for it are refused. What is read
        for clients is read where there is `answer_room`.
        """
        self._metadata = metadata
        self._network = network
        self._stream_counts = stream_counts
        self._local = local
        self._node_bytes_max = node_bytes_max
        self._answer_room = answer_room
        if local is not None and answer_room is not None:
            local.read_within(answer_room)
        self._storage: dict[int, StorageLink] = {}
        self._coordinators: dict[str, CoordinatorLink] = {}
        self._transactions: dict[str, TransactionsLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        metadata.on_change(self._on_metadata)

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def storage(self, node_id: int) -> StorageLink | None:
        """The link to a storage node, or None when no such node is registered or it is fenced."""
        node = self.image.nodes.get(node_id)
        if node is None or node.fenced:
            return None
        if self._local is not None and node_id == self._local.node_id:
            return self._local
        link = self._storage.get(node_id)
        if link is None or link.address != node.address:
            link = self._storage[node_id] = self._network.connect_storage(
                node.address,
                self._stream_counts,
                append_bytes_max=self._node_bytes_max,
                answer_room=self._answer_room,
            )
        return link

    def coordinator_for_group(self, group_id: str) -> CoordinatorLink:
        """The coordinator that owns the group.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) while the offsets topic has no partition or the partition has no
        coordinator.
        """
        coordinator = coordinator_of(self.image, GROUP_METADATA_TOPIC, group_id)
        if coordinator is None:
            raise KafkaError(NOBODY_COORDINATES)
        return self.coordinator_at(coordinator.address)

    def coordinator_at(self, address: str) -> CoordinatorLink:
        """The coordinator at an address."""
        link = self._coordinators.get(address)
        if link is None:
            link = self._coordinators[address] = self._network.connect_coordinator(address)
        return link

    def transactions_for(self, transactional_id: str) -> TransactionsLink:
        """The coordinator that owns the transactional id.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) while the topic of transactions has no partition or the partition
        has no coordinator.
        """
        coordinator = coordinator_of(self.image, TRANSACTION_STATE_TOPIC, transactional_id)
        if coordinator is None:
            raise KafkaError(NOBODY_COORDINATES)
        return self.transactions_at(coordinator.address)

    def transactions_at(self, address: str) -> TransactionsLink:
        """The coordinator of transactions at an address."""
        link = self._transactions.get(address)
        if link is None:
            link = self._transactions[address] = self._network.connect_transactions(address)
        return link

    def _on_metadata(self, _: MetadataImage, new: MetadataImage) -> None:
        for node_id, link in list(self._storage.items()):
            node = new.nodes.get(node_id)
            if node is None or node.fenced or node.address != link.address:
                del self._storage[node_id]
                self._close_later(link.close())
        addresses = {coordinator.address for coordinator in new.coordinators.values()}
        for address in self._coordinators.keys() - addresses:
            self._close_later(self._coordinators.pop(address).close())
        for address in self._transactions.keys() - addresses:
            self._close_later(self._transactions.pop(address).close())

    def _close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for node in self._storage.values():
            await node.close()
        for coordinator in self._coordinators.values():
            await coordinator.close()
        for transactions in self._transactions.values():
            await transactions.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
