"""Producers of a simulated cluster, which speak Kafka's protocol to gateways, as librdkafka does it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from history import History, Place
from kafka_client import RETRY_SECONDS, KafkaClient, Leader, init_producer_id
from kafka_connection import PRODUCE, Disconnected, KafkaConnection
from world import World

from barnabas.kernel.errors import ErrorCode
from barnabas.records.record import Header, encode_batch

PAUSE_SECONDS: Final = 0.15
"""Between what a producer sends at a time, on average."""

STARTS_AGAIN: Final = 0.1
"""How often an idempotent producer is a new one when all that it sent is settled."""

TIMEOUT_MS: Final = 1_000
"""Of what nobody waits for."""

ANSWER_SECONDS_MAX: Final = 1.3
"""How much longer than its own time-out a request is waited for: a gateway has said something by then, if it lives."""

TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
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


class Versions(NamedTuple):
    """What one client speaks."""

    produce: int
    fetch: int

    @property
    def has_ids(self) -> bool:
        """Whether topics are named by their ids."""
        return self.produce >= 13


BY_ID: Final = Versions(13, 17)
VERSIONS: Final = (Versions(7, 11), Versions(12, 12), BY_ID)
"""Of a client that knows no tagged fields, one that names topics, and one that has their ids."""


def topic_of(place: Place, leader: Leader, versions: Versions, name: str) -> dict[str, Any]:
    """The topic's own fields in a request; `name` is the one that its name has there."""
    return {"topic_id": leader.topic_id} if versions.has_ids else {name: place.topic}


class Parts(NamedTuple):
    """A record that is to be sent."""

    content: bytes
    """What is remembered of it: unlike that of any other record."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


@dataclass(slots=True, eq=False)
class Batch:
    """Records that are sent together until they are acknowledged."""

    values: list[bytes]
    records: bytes
    number: int
    place_in_order: int
    answer: asyncio.Future[Any] | None = None
    """Of the request that it is in, while that is under way."""
    through: KafkaConnection | None = None
    """Where it was sent the first time; None if it was sent again."""
    attempts: int = 0
    is_first: bool = False
    """Whether all before it were acknowledged when it was sent."""
    not_before: int = 0
    """The first offset that it can have: behind all that was acknowledged when it was made."""


class Producer:
    """One producer to one partition: sends ahead, and sends again whatever was not acknowledged, in order.

    What is under way is on one connection: to another one it goes when all that was sent before is settled.
    """

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: History,
        name: str,
        place: Place,
        *,
        acks: int,
        in_flight: int,
        versions: Versions,
        chance: random.Random,
    ) -> None:
        self.name = name
        self.place = place
        self.acks = acks
        self._world = world
        self._client = client
        self._history = history
        self._in_flight = in_flight
        self._versions = versions
        self._producer_id = -1
        self._chance = chance
        self._sequence = 0
        self._numbers = 0
        self._batches = 0
        self._unsettled: deque[Batch] = deque()
        self._through: KafkaConnection | None = None
        self._last: tuple[KafkaConnection | None, int] = None, -1
        """Where the last batch that was sent once was sent, and where it is."""
        self._acknowledged_to = 0
        """The first offset behind all batches that were acknowledged."""
        self._is_forgotten = False
        """Whether a leader has never heard of what it wrote: it ends, as a client does that is told so."""
        self.is_done = False

    def _new_batch(self) -> Batch:
        first = self._numbers
        self._numbers += self._chance.randint(1, 4)
        padding = bytes(self._chance.choice((5, 60, 400, 1_500)))
        parts = [self._parts(number, padding) for number in range(first, self._numbers)]
        idempotent = (
            {"producer_id": self._producer_id, "producer_epoch": 0, "base_sequence": self._sequence}
            if self._producer_id >= 0
            else {}
        )
        now_ms = 1_700_000_000_000 + int(self._world.now * 1000)
        records = encode_batch([(now_ms, each.key, each.value, each.headers) for each in parts], **idempotent)
        self._sequence += len(parts)
        self._history.on_sent(self.name, len(parts))
        self._batches += 1
        contents = [each.content for each in parts]
        return Batch(contents, records, first, self._batches, not_before=self._acknowledged_to)

    def _parts(self, number: int, padding: bytes) -> Parts:
        value = f"{self.name}:{number}:".encode() + padding
        return Parts(value, None, value, ())

    async def run(self, until: float, *, is_idempotent: bool) -> None:
        """Produce until then, and until all of it is acknowledged."""
        next_at = self._world.now
        while (self._world.now < until and not self._is_forgotten) or self._unsettled:
            if is_idempotent and not self._unsettled and self._chance.random() < self._begins_anew():
                self._producer_id, self._sequence = await init_producer_id(self._client), 0
            is_due = next_at <= self._world.now < until and not self._is_forgotten
            if is_due and self._ahead < self._in_flight:
                for _ in range(self._chance.randint(1, self._in_flight - self._ahead)):
                    self._unsettled.append(self._new_batch())
                next_at = self._world.now + self._chance.expovariate(1 / PAUSE_SECONDS)
            if not await self._send():
                await asyncio.sleep(RETRY_SECONDS)
            has_room = self._ahead < self._in_flight and self._world.now < until
            await self._settle(max(min(next_at, until) - self._world.now, 0.001) if has_room else None)
        self.is_done = True

    def _begins_anew(self) -> float:
        """How likely it is that the producer is started again: to a partition, it is one that it does not know."""
        return 1.0 if self._producer_id < 0 else STARTS_AGAIN

    @property
    def _ahead(self) -> int:
        """Batches from the first that is not settled on: of so many a partition remembers where they are."""
        return self._batches - self._unsettled[0].place_in_order + 1 if self._unsettled else 0

    @property
    def _under_way(self) -> list[asyncio.Future[Any]]:
        return [batch.answer for batch in self._unsettled if batch.answer is not None]

    async def _send(self) -> bool:
        """Send what is not under way; whether nothing is left to send."""
        if all(batch.answer is not None for batch in self._unsettled):
            return True
        leader = self._client.leader(self.place)
        if leader is None:
            return False
        try:
            connection = await self._client.connection(leader.address)
        except ConnectionError as error:
            self._say(f"no connection to {leader.address}: {error}")
            self._client.refresh()
            return False
        if connection is not self._through and self._under_way:
            return True  # what is under way goes first
        self._through = connection
        if self.acks == 0:
            self._send_only(connection, leader)
            return True
        timeout_ms = self._chance.choice((300, 1000, 1500))
        for number, batch in enumerate(self._unsettled):
            if batch.answer is None:
                batch.is_first = not number
                batch.attempts += 1
                batch.through = connection if batch.attempts == 1 else None
                batch.answer = connection.send(
                    PRODUCE,
                    self._versions.produce,
                    self._request(batch, leader, timeout_ms),
                    timeout_ms / 1000 + ANSWER_SECONDS_MAX,
                )
        return True

    def _send_only(self, connection: KafkaConnection, leader: Leader) -> None:
        """Nobody says what becomes of it."""
        for batch in self._unsettled:
            self._say(f"{self.place} batch {batch.number} is sent")
            request = self._request(batch, leader, TIMEOUT_MS)
            connection.send_only(PRODUCE, self._versions.produce, request)
        self._unsettled.clear()

    def _request(self, batch: Batch, leader: Leader, timeout_ms: int) -> dict[str, Any]:
        partition = {"index": self.place.partition, "records": batch.records}
        topic = {**topic_of(self.place, leader, self._versions, "name"), "partition_data": [partition]}
        return {"acks": self.acks, "timeout": timeout_ms, "topic_data": [topic]}

    async def _settle(self, seconds_max: float | None) -> None:
        """Wait for answers, if something is under way, and take them."""
        under_way = self._under_way
        if not under_way:
            if not self._unsettled and seconds_max is not None:
                await asyncio.sleep(seconds_max)
            return
        await asyncio.wait(under_way, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
        has_failed = False
        for batch in list(self._unsettled):
            if batch.answer is not None and batch.answer.done():
                answer, batch.answer = batch.answer, None
                if not self._take(batch, answer):
                    has_failed = True
        if has_failed:
            self._client.refresh()
            await asyncio.sleep(self._chance.uniform(0.2, 1.0) * RETRY_SECONDS)

    def _take(self, batch: Batch, answer: asyncio.Future[Any]) -> bool:
        """Whether it is acknowledged."""
        try:
            result = answer.result().responses[0].partition_responses[0]
        except Disconnected as error:
            self._say(f"{self.place} batch {batch.number}: {error}")
            return False
        code = ErrorCode(result.error_code)
        self._say(f"{self.place} batch {batch.number}: {code.name} at {result.base_offset}")
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            self._unsettled.remove(batch)
            self._acknowledged_to = max(self._acknowledged_to, result.base_offset + len(batch.values))
            self._check_order(batch, result.base_offset)
            self._history.on_acknowledged(self.place, result.base_offset, batch.values, self.name, self.acks)
            return True
        if code is ErrorCode.out_of_order_sequence_number:
            if not batch.is_first:
                return False
            if self._may_be_deleted(batch):
                self._is_forgotten = True
                self._unsettled.remove(batch)
                return True
        if code not in TRY_AGAIN:
            message = getattr(result, "error_message", "")
            self._world.violate(
                f"{self.name}: {self.place} batch {batch.number} is refused with {code.name} {message}"
            )
        return False

    def _may_be_deleted(self, batch: Batch) -> bool:
        """Whether it may have been written, and deleted before its producer was told. A replica that begins where its
        leader's log does by then has never heard of the producer: as its leader it takes the next batch whatever its
        sequence, and refuses those that do not follow on that (as Kafka's do).
        """
        return batch.attempts > 1 and batch.not_before < self._history.may_be_deleted(self.place)

    def _check_order(self, batch: Batch, offset: int) -> None:
        """What is sent on one connection, once, is in the log in that order.

        Batches without sequences that are under way together may change places where leadership moves.
        """
        if (
            batch.through is None or offset < 0 or self.acks == 1
        ):  # its records may be lost, and offsets given anew
            return
        connection, before = self._last
        is_ordered = self._producer_id >= 0 or batch.is_first
        if connection is batch.through and offset <= before and is_ordered:
            self._world.violate(
                f"REORDERED: {self.name}: {self.place} batch {batch.number} is at {offset}, one before it at {before}"
            )
        self._last = batch.through, max(offset, before if connection is batch.through else -1)

    def _say(self, what: str) -> None:
        self._world.trace.say(self.name, what)
