"""Consumers of transactional topics: what a fetch brings, filtered as clients of Kafka do it, and what is held against
it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from clients import ANSWER_SECONDS_MAX, TRY_AGAIN, Versions, topic_of
from consumers import NO_SESSION, WITHOUT_SESSION_EPOCH
from history import History, Place
from kafka_client import KafkaClient
from kafka_connection import FETCH, Disconnected
from transaction_history import TransactionHistory
from world import World

from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.control import decode_marker
from barnabas.records.record import decode_records

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

WAIT_MS: Final = (0, 50, 300)

VERSIONS: Final = (Versions(11, 11), Versions(12, 12), Versions(13, 17))


class Found(NamedTuple):
    """A record, and whether it is of an aborted transaction, as far as the fetch says."""

    offset: int
    value: bytes
    is_aborted: bool


class Fetched(NamedTuple):
    """What one fetch brought: records, and where to read on."""

    records: Sequence[Found]
    position: int


def records_of(data: bytes, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, list[Found]]]:
    """Of each whole batch: its first offset, the one behind it, and its records; `aborted` are producers with the first
    offsets of their aborted transactions."""
    coming = sorted(aborted, key=lambda each: each[1])
    gone: set[int] = set()
    for position, header in iterate_headers(data):
        batch = data[position : position + header.size_in_bytes]
        if len(batch) < header.size_in_bytes:
            return
        assert crc_is_valid(batch), f"the batch at {header.base_offset} is damaged"
        while coming and coming[0][1] <= header.last_offset:
            gone.add(coming.pop(0)[0])
        found: list[Found] = []
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None and not marker.committed:
                gone.discard(header.producer_id)
        else:
            is_aborted = header.is_transactional and header.producer_id in gone
            found += [Found(each.offset, each.value or b"", is_aborted) for each in decode_records(batch)]
        yield header.base_offset, header.last_offset + 1, found


class TransactionReader:
    """One partition as a consumer reads it. Owner of its position."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        histories: tuple[History, TransactionHistory],
        place: Place,
        chance: random.Random,
        isolation: int,
    ) -> None:
        self.place = place
        self.position = 0
        self.name = client.name
        self._world = world
        self._client = client
        self._history, self._transactions = histories
        self._chance = chance
        self._isolation = isolation
        self._versions = chance.choice(VERSIONS)

    async def run(self) -> None:
        """Read for ever."""
        while True:
            fetched = await self.read()
            if fetched is None:
                self._client.refresh()
                await asyncio.sleep(self._chance.uniform(0.02, 0.1))
                continue
            for each in fetched.records:
                if self._isolation == READ_COMMITTED:
                    self._transactions.on_read(self.place, each.offset, each.value, self.name)
            self.position = fetched.position
            await asyncio.sleep(self._chance.uniform(0.0, 0.05))

    async def read(self) -> Fetched | None:
        """What is there from its position on; None if nobody leads."""
        place, leader = self.place, self._client.leader(self.place)
        if leader is None:
            return None
        wanted = {
            "partition": place.partition,
            "current_leader_epoch": leader.epoch,
            "fetch_offset": self.position,
            "partition_max_bytes": 20_000,
        }
        wait_ms = self._chance.choice(WAIT_MS)
        request = {
            "replica_id": -1,
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 50_000,
            "isolation_level": self._isolation,
            "session_id": NO_SESSION,
            "session_epoch": WITHOUT_SESSION_EPOCH,
            "topics": [{**topic_of(place, leader, self._versions, "topic"), "partitions": [wanted]}],
            "forgotten_topics_data": [],
        }
        known = self._history.high_watermark_in(place, leader.epoch)
        stable = self._transactions.stable_in(place, leader.epoch)
        try:
            connection = await self._client.connection(leader.address)
            seconds = wait_ms / 1000 + ANSWER_SECONDS_MAX
            answer = await connection.send(FETCH, self._versions.fetch, request, seconds)
        except (ConnectionError, Disconnected) as error:
            self._world.trace.say(self.name, f"{place} at {self.position}: {error}")
            return None
        result = answer.responses[0].partitions[0]
        code = ErrorCode(result.error_code)
        if code is not ErrorCode.none:
            if code not in TRY_AGAIN:
                self._world.violate(f"{self.name}: {place} cannot be read at {self.position}: {code.name}")
            return None
        high_watermark = result.high_watermark
        self._history.on_high_watermark(place, leader.epoch, known, high_watermark, self.name)
        self._transactions.on_stable(place, leader.epoch, stable, result.last_stable_offset, self.name)
        if result.last_stable_offset > high_watermark:
            self._world.violate(
                f"{place}: the last stable offset is above the high watermark {high_watermark}"
            )
        is_committed = self._isolation == READ_COMMITTED
        return self._take(result, result.last_stable_offset if is_committed else high_watermark)

    def _take(self, result: Any, end: int) -> Fetched:
        aborted = [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()]
        found, position = [], self.position
        for first, behind, records in records_of(result.records or b"", aborted):
            missing = range(position, first)
            if missing and not self._world.trace.is_gap(str(self.place), missing):
                self._world.violate(f"{self.place}: offset {position} is missing, {first} is there")
            if behind > end:
                self._world.violate(
                    f"{self.place}: {self.name} is given offset {behind - 1}, only {end} may be read"
                )
            for each in records:
                if each.offset < position:
                    continue
                self._history.on_read(self.place, each.offset, each.value, self.name)
                if not each.is_aborted:
                    found.append(each)
            position = behind
        return Fetched(found, position)
