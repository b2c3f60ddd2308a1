"""Clients of a simulated cluster, which go to storage nodes as a gateway does: by the metadata, over storage links."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from history import History, Place
from machines import controller_addresses
from world import Violation, World

from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode
from barnabas.links.controller_link import ControllerLink
from barnabas.links.errors import LinkError
from barnabas.links.storage_link import StorageLink
from barnabas.messages.controller_pb2 import AllocateProducerIdsRequest, WatchRequest
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionAppend,
    PartitionAppendResult,
    PartitionFetch,
)
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.record import decode_records, encode_batch

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.15
"""Between two rounds of a producer, on average."""

ANSWER_SECONDS_MAX: Final = 0.7
"""How much longer than its own time-out a request is waited for."""

LATEST: Final = -1
"""The timestamp by which ListOffsets is asked for the high watermark."""

LOOK_UPS: Final = 0.1
"""How often a consumer looks up the latest offset after a fetch."""

TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
    }
)
"""After which clients of Kafka send a request again."""


class ClusterView:
    """The metadata as a client has them, and its links to the nodes."""

    def __init__(self, environment: Environment, controllers: int) -> None:
        self._network = environment.network
        self._subscription = MetadataSubscription(
            environment.network, controller_addresses(controllers), WatchRequest
        )
        self._links: dict[str, StorageLink] = {}

    @property
    def image(self) -> MetadataImage:
        return self._subscription.image

    @property
    def controller(self) -> ControllerLink:
        return self._subscription.controller

    async def follow(self) -> None:
        await self._subscription.run()

    def leader(self, place: Place) -> tuple[PartitionRecord, StorageLink] | None:
        """None while nobody leads."""
        image = self.image
        topic = image.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        record = topic.partitions[place.partition]
        node = image.nodes.get(record.leader)
        if node is None:
            return None
        link = self._links.get(node.address)
        if link is None:
            link = self._links[node.address] = self._network.connect_storage(node.address)
        return record, link

    async def ask_controller(self, ask: Callable[[ControllerLink], Awaitable[T]]) -> T:
        """What the active controller answers, whenever that is."""
        while True:
            try:
                return await ask(self.controller)
            except LinkError:
                await asyncio.sleep(0.1)


@dataclass(slots=True)
class Batch:
    """Records that are sent together until they are acknowledged."""

    values: list[bytes]
    records: bytes
    number: int
    is_sent: bool = field(default=False)


class Producer:
    """One producer to one partition: sends, and sends again whatever was not acknowledged, in order."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        history: History,
        name: str,
        place: Place,
        *,
        acks: int,
        in_flight: int,
        producer_id: int,
        chance: random.Random,
    ) -> None:
        """An idempotent one has a `producer_id` of 0 or more."""
        self.name = name
        self.place = place
        self.acks = acks
        self._world = world
        self._view = view
        self._history = history
        self._in_flight = in_flight
        self._producer_id = producer_id
        self._chance = chance
        self._sequence = 0
        self._numbers = 0
        self._unsettled: deque[Batch] = deque()
        self.is_done = False

    def _new_batch(self) -> Batch:
        first = self._numbers
        self._numbers += self._chance.randint(1, 4)
        padding = bytes(self._chance.choice((5, 60, 400, 1_500)))
        values = [f"{self.name}:{number}:".encode() + padding for number in range(first, self._numbers)]
        idempotent = (
            {"producer_id": self._producer_id, "producer_epoch": 0, "base_sequence": self._sequence}
            if self._producer_id >= 0
            else {}
        )
        now_ms = 1_700_000_000_000 + int(self._world.now * 1000)
        records = encode_batch([(now_ms, None, value, ()) for value in values], **idempotent)
        self._sequence += len(values)
        self._history.sent += len(values)
        return Batch(values, records, first)

    async def run(self, until: float) -> None:
        """Produce until then, and until all of it is acknowledged."""
        while self._world.now < until or self._unsettled:
            while len(self._unsettled) < self._in_flight and self._world.now < until:
                self._unsettled.append(self._new_batch())
            if self._unsettled:
                await self._send_all()
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_SECONDS))
        self.is_done = True

    async def _send_all(self) -> None:
        found = self._view.leader(self.place)
        if found is None:
            return
        record, link = found
        timeout_ms = self._chance.choice((300, 1000, 1500))
        sent = []
        for batch in list(self._unsettled):
            item = PartitionAppend(
                topic_id=record.topic_id,
                partition=self.place.partition,
                leader_epoch=-1,
                records=batch.records,
            )
            request = AppendRequest(partitions=[item], acks=self.acks, timeout_ms=timeout_ms)
            seconds = timeout_ms / 1000 + ANSWER_SECONDS_MAX
            sent.append((batch, link.appends.send(request, len(batch.records), seconds)))
        is_first = True
        for batch, future in sent:
            try:
                result = (await future).partitions[0]
            except LinkError as error:
                self._world.trace.say(self.name, f"{self.place} batch {batch.number}: {error!r}")
                is_first = False
                continue
            is_first = self._settle(batch, result, is_first=is_first)

    def _settle(self, batch: Batch, result: PartitionAppendResult, *, is_first: bool) -> bool:
        """Whether everything before the next batch is acknowledged."""
        code = ErrorCode(result.error_code)
        self._world.trace.say(
            self.name, f"{self.place} batch {batch.number}: {code.name} at {result.base_offset}"
        )
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self._unsettled.remove(batch)
            self._history.on_acknowledged(self.place, result.base_offset, batch.values, self.name, self.acks)
            return is_first
        if code is ErrorCode.out_of_order_sequence_number and not is_first:
            return False  # one before it did not land
        if code not in TRY_AGAIN:
            self._world.violate(
                f"{self.name}: {self.place} batch {batch.number} is refused with {code.name} {result.error_message}"
            )
        return False


class Consumer:
    """Reads one partition from its beginning, for ever."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        history: History,
        name: str,
        place: Place,
        chance: random.Random,
    ) -> None:
        self.name = name
        self.place = place
        self.position = 0
        self._world = world
        self._view = view
        self._history = history
        self._chance = chance

    async def run(self) -> None:
        while True:
            found = self._view.leader(self.place)
            if found is None or not await self._read(*found):
                await asyncio.sleep(self._chance.uniform(0.02, 0.1))
            elif self._chance.random() < LOOK_UPS:
                await self._look_up(*found)

    async def _look_up(self, record: PartitionRecord, link: StorageLink) -> None:
        known = self._history.high_watermarks.get(self.place, 0)
        item = ListOffsetsPartition(
            topic_id=record.topic_id,
            partition=self.place.partition,
            current_leader_epoch=record.leader_epoch,
            timestamp_ms=LATEST,
        )
        try:
            answer = await link.ListOffsets(ListOffsetsRequest(partitions=[item]), timeout=ANSWER_SECONDS_MAX)
        except LinkError:
            return
        result = answer.results[0]
        if result.error_code == 0:
            self._history.on_latest_offset(self.place, known, result.offset, self.name)
        elif ErrorCode(result.error_code) not in TRY_AGAIN:
            self._world.violate(f"{self.name}: no latest offset of {self.place}: {result.error_code}")

    async def _read(self, record: PartitionRecord, link: StorageLink) -> bool:
        item = PartitionFetch(
            topic_id=record.topic_id,
            partition=self.place.partition,
            fetch_offset=self.position,
            max_bytes=20_000,
            current_leader_epoch=record.leader_epoch,
            last_fetched_epoch=-1,
        )
        wait_ms = self._chance.choice((0, 50, 500))
        request = FetchRequest(partitions=[item], max_wait_ms=wait_ms, min_bytes=1, max_bytes=50_000)
        try:
            fetched = await link.fetches.send(request, 0, wait_ms / 1000 + ANSWER_SECONDS_MAX)
        except LinkError:
            return False
        fields, records = fetched.partitions[0]
        code = ErrorCode(fields.error_code)
        if code is not ErrorCode.none:
            if code not in TRY_AGAIN:
                self._world.violate(
                    f"{self.name}: {self.place} cannot be read at {self.position}: {code.name}"
                )
            return False
        self._history.on_high_watermark(self.place, record.leader_epoch, fields.high_watermark, self.name)
        self._take(bytes(records), fields.high_watermark)
        return True

    def _take(self, data: bytes, high_watermark: int) -> None:
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_in_bytes]
            if len(batch) < header.size_in_bytes:
                break  # cut by the limit
            if not crc_is_valid(batch):
                self._world.violate(f"{self.place}: the batch at {header.base_offset} is damaged")
            for found in decode_records(batch):
                if found.offset < self.position:
                    continue
                if found.offset != self.position:
                    self._world.violate(
                        f"{self.place}: offset {self.position} is missing, {found.offset} is there"
                    )
                if found.offset >= high_watermark:
                    self._world.violate(
                        f"{self.place}: offset {found.offset} is read above the high watermark {high_watermark}"
                    )
                assert found.value is not None
                self._history.on_read(self.place, found.offset, found.value, self.name)
                self.position = found.offset + 1


async def allocate_producer_ids(view: ClusterView, count: int) -> Sequence[int]:
    """As gateways do for InitProducerId."""
    answer = await view.ask_controller(
        lambda controller: controller.AllocateProducerIds(AllocateProducerIdsRequest(), timeout=2.0)
    )
    if answer.count < count:
        raise Violation(f"a block of {answer.count} producer ids")
    return range(answer.first_producer_id, answer.first_producer_id + count)
