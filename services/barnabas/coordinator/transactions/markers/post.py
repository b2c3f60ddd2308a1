"""How markers reach those who are told: appends to storage nodes, calls to owners of offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.places import Place
from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.gathering import gather
from barnabas.kernel.kafka_values import ALL_REPLICAS
from barnabas.links.errors import LinkError, OutcomeUnknown
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.coordinator_pb2 import CompleteTransactionRequest, CompleteTransactionResponse
from barnabas.messages.storage_pb2 import AppendRequest, CoordinatorIdentity, PartitionAppend
from barnabas.metadata.image import MetadataImage

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink
    from barnabas.links.network import Network
    from barnabas.links.storage_link import StorageLink

_ANSWER_SECONDS_MAX = (limits.MARKER_ANSWER_MS_MAX + limits.APPEND_GRACE_MS) / 1000


class Post(Protocol):
    """What a sender of markers needs of the world."""

    async def send(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Have `place` take the marker for each of `partitions`, once; Kafka's code for each of them, in order.

        REQUEST_TIMED_OUT where nobody knows.
        """
        ...

    def send_at_once(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        """Those of `partitions` whose leader is in this process and has the marker for good before this returns."""
        ...


CompleteHere = Callable[[CompleteTransactionRequest], Awaitable[CompleteTransactionResponse]]
"""Tells the owner of offsets in this process."""


class LinkPost:
    """Owns the links to other coordinators. Those to storage nodes are the log's, which `link_to` gives.

    What belongs to this process is told by a plain call: most transactions have offsets, and most clusters on one
    machine one coordinator.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        clock: Clock,
        identity: CoordinatorIdentity,
        link_to: Callable[[int], StorageLink | None],
        network: Network,
        complete_here: CompleteHere,
    ) -> None:
        self._image = image
        self._clock = clock
        self._identity = identity
        self._link_to = link_to
        self._network = network
        self._complete_here = complete_here
        self._coordinators: dict[str, CoordinatorLink] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def send(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        if not place.is_coordinator:
            return await self._append(place, marker, partitions)
        return await gather(self._complete(place, marker, each.partition) for each in partitions)

    def send_at_once(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        link = None if place.is_coordinator else self._link_to(int(place.id))
        if link is None or link.here is None:
            return []
        node, batch = link.here, marker.as_batch(self._clock.now_ms())
        told = []
        for partition in partitions:
            item = self._item(partition, marker)
            if item is not None:
                item.records = batch
                if node.write_at_once(self._identity, item) is not None:
                    told.append(partition)
        return told

    async def _append(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        link = self._link_to(int(place.id))
        if link is None:
            return [ErrorCode.not_leader_or_follower] * len(partitions)
        batch = marker.as_batch(self._clock.now_ms())
        request = AppendBatches(
            AppendRequest(
                acks=ALL_REPLICAS, timeout_ms=limits.MARKER_ANSWER_MS_MAX, coordinator=self._identity
            )
        )
        codes = [ErrorCode.unknown_topic_or_partition] * len(partitions)
        sent = []
        for number, partition in enumerate(partitions):
            item = self._item(partition, marker)
            if item is not None:
                request.add(item, batch)
                sent.append(number)
        if not sent:
            return codes
        try:
            result = await link.appends.send(request, len(batch) * len(sent), _ANSWER_SECONDS_MAX)
        except LinkError as error:
            answered = [_code_of(error)] * len(sent)
        else:
            answered = [ErrorCode(each.error_code) for each in result.partitions]
        for number, code in zip(sent, answered, strict=True):
            codes[number] = code
        return codes

    def _item(self, partition: TopicPartition, marker: Marker) -> PartitionAppend | None:
        """What the leader is sent, but for the batch; None where there is no such partition."""
        name, index = partition
        topic = self._image().topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return None
        return PartitionAppend(
            topic_id=topic.topic_id,
            partition=index,
            leader_epoch=topic.partitions[index].leader_epoch,
            marker_transaction_version=marker.transaction_version,
        )

    async def _complete(self, place: Place, marker: Marker, partition: int) -> ErrorCode:
        request = CompleteTransactionRequest(
            partition=partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        try:
            if place.id == self._identity.coordinator_id:
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    response = await self._complete_here(request)
            else:
                link = self._coordinator_at(place.address)
                response = await link.CompleteTransaction(request, timeout=_ANSWER_SECONDS_MAX)
        except TimeoutError:
            return ErrorCode.request_timed_out
        except LinkError as error:
            return _code_of(error)
        return ErrorCode(response.error_code)

    def on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Close links to addresses at which no coordinator is any more; what waits on them fails."""
        addresses = {each.address for each in new.coordinators.values()}
        for address in [each for each in self._coordinators if each not in addresses]:
            self._drop(address)

    async def close(self) -> None:
        """Close all links; what waits on them fails."""
        for address in list(self._coordinators):
            self._drop(address)
        await asyncio.gather(*self._closing)

    def _drop(self, address: str) -> None:
        task = asyncio.get_running_loop().create_task(self._coordinators.pop(address).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _coordinator_at(self, address: str) -> CoordinatorLink:
        link = self._coordinators.get(address)
        if link is None:
            link = self._coordinators[address] = self._network.connect_coordinator(address)
        return link


def _code_of(error: LinkError) -> ErrorCode:
    """Whether the marker has landed may not be known; it certainly has not where the process was not reached."""
    is_open = isinstance(error, OutcomeUnknown)
    return ErrorCode.request_timed_out if is_open else ErrorCode.not_leader_or_follower
