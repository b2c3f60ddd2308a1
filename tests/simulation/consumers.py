"""Consumers of a simulated cluster: each partition by itself, or all in fetch sessions (KIP-227).

A consumer with sessions asks each broker for what it leads, or one of them for everything: any gateway serves all, so
that one fetch waits for several leaders, of which one may be late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from clients import ANSWER_SECONDS_MAX, TRY_AGAIN, Versions, topic_of
from history import History, Place
from kafka_client import REFRESH_SECONDS, KafkaClient, Leader
from kafka_connection import FETCH, LIST_OFFSETS, Disconnected, KafkaConnection
from world import World

from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.record import Record, decode_records

EARLIEST: Final = -2
LATEST: Final = -1
"""The timestamps by which ListOffsets is asked for the beginning, and for the high watermark."""

LOOK_UPS: Final = 0.1
"""How often a consumer looks up the latest offset after a fetch."""

WAIT_MS: Final = (0, 50, 500)

STAYS_NEARBY: Final = 0.97
"""How likely a consumer goes on to read from the follower that the leader has named, as until metadata.max.age.ms."""

NOBODY: Final = -1

NO_SESSION: Final = 0
NEW_SESSION_EPOCH: Final = 0
WITHOUT_SESSION_EPOCH: Final = -1

SESSION_IS_GONE: Final = frozenset(
    {ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch}
)

STAYS: Final = 0.95
"""How likely a consumer goes on to ask the same broker for everything."""


class Known(NamedTuple):
    """What was known of a partition when a fetch was sent."""

    position: int
    log_start: int
    high_watermark: int


class Reader:
    """One partition as a consumer reads it. Owner of its position."""

    def __init__(self, world: World, client: KafkaClient, history: History, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.position = 0
        self._world = world
        self._client = client
        self._history = history

    @property
    def leader(self) -> Leader | None:
        return self._client.leader(self.place)

    def wanted(self, leader: Leader) -> dict[str, Any]:
        """The partition in a fetch."""
        return {
            "partition": self.place.partition,
            "current_leader_epoch": leader.epoch,
            "fetch_offset": self.position,
            "partition_max_bytes": 20_000,
        }

    def known(self, leader: Leader) -> Known:
        """What is held against the answer of a fetch that is sent now."""
        history, place = self._history, self.place
        return Known(
            self.position, history.first_possible(place), history.high_watermark_in(place, leader.epoch)
        )

    def rewind(self) -> None:
        """It shall read everything again."""
        self.position = 0

    def on_followers_result(self, known: Known, result: Any) -> bool:
        """Take what a follower has of it, who may know less than the leader; whether that is any use."""
        code = ErrorCode(result.error_code)
        if code is ErrorCode.none:
            return self.position != known.position or self._take(result.records or b"", result.high_watermark)
        if code not in TRY_AGAIN and code is not ErrorCode.offset_out_of_range:  # the leader is to say that
            self._world.violate(f"{self.name}: {self.place} cannot be read at a follower: {code.name}")
        return False

    async def on_result(self, leader: Leader, known: Known, result: Any) -> bool:
        """Take what a fetch has of the partition; whether somebody led it."""
        code = ErrorCode(result.error_code)
        if code is ErrorCode.none:
            self._history.on_log_start(self.place, known.log_start, result.log_start_offset, self.name)
            self._history.on_high_watermark(
                self.place, leader.epoch, known.high_watermark, result.high_watermark, self.name
            )
            if self.position != known.position:
                return True  # what was asked for is not wanted any more
            return self._take(result.records or b"", result.high_watermark)
        if code is ErrorCode.offset_out_of_range and self.position < self._history.may_be_deleted(self.place):
            await self._begin_anew(leader)
            return True
        if code not in TRY_AGAIN:
            self._world.violate(f"{self.name}: {self.place} cannot be read at {self.position}: {code.name}")
        return False

    def _take(self, data: bytes, high_watermark: int) -> bool:
        """Whether all of it could be read."""
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_in_bytes]
            if len(batch) < header.size_in_bytes:
                break  # cut by the limit
            if not crc_is_valid(batch):
                if self.place in self._history.rotten:
                    return False  # another leader may have it
                self._world.violate(f"{self.place}: the batch at {header.base_offset} is damaged")
            for found in decode_records(batch):
                if found.offset < self.position:
                    continue
                self._check_gap(found)
                if found.offset >= high_watermark:
                    self._world.violate(
                        f"{self.place}: offset {found.offset} is read above the high watermark {high_watermark}"
                    )
                self._history.on_read(self.place, found.offset, self._content(found), self.name)
                self.position = found.offset + 1
            self.position = max(self.position, header.next_offset)
        return True

    def _check_gap(self, found: Record) -> None:
        missing = range(self.position, found.offset)
        if missing and not self._world.trace.is_gap(str(self.place), missing):
            self._world.violate(f"{self.place}: offset {self.position} is missing, {found.offset} is there")

    def _content(self, found: Record) -> bytes:
        assert found.value is not None
        return found.value

    async def look_up(self, leader: Leader) -> None:
        """The latest offset."""
        known = self._history.high_watermarks.get(self.place, 0)
        offset = await self._offset_at(LATEST, leader)
        if offset is not None:
            self._history.on_latest_offset(self.place, known, offset, self.name)

    async def _begin_anew(self, leader: Leader) -> None:
        """Where the log begins now: what was before has been deleted."""
        known, position = self._history.first_possible(self.place), self.position
        start = await self._offset_at(EARLIEST, leader)
        if start is None:
            return
        self._history.on_log_start(self.place, known, start, self.name)
        if start <= position:
            self._world.violate(
                f"{self.name}: {self.place} is out of range at {position}, it begins at {start}"
            )
        self.position = max(self.position, start)

    async def _offset_at(self, timestamp: int, leader: Leader) -> int | None:
        """Raises ConnectionError, Disconnected."""
        connection = await self._client.connection(leader.address)
        partition = {
            "partition_index": self.place.partition,
            "current_leader_epoch": leader.epoch,
            "timestamp": timestamp,
        }
        topic = {"name": self.place.topic, "partitions": [partition]}
        request = {"replica_id": -1, "topics": [topic]}
        answer = await connection.send(LIST_OFFSETS, 8, request, ANSWER_SECONDS_MAX)
        result = answer.topics[0].partitions[0]
        if not result.error_code:
            return int(result.offset)
        if ErrorCode(result.error_code) not in TRY_AGAIN:
            self._world.violate(f"{self.name}: no offset of {self.place}: {result.error_code}")
        return None


class Consumer:
    """Reads one partition from its beginning, for ever, with a request of its own for each read."""

    def __init__(
        self, world: World, client: KafkaClient, reader: Reader, versions: Versions, chance: random.Random
    ) -> None:
        self.name = reader.name
        self.rack = ""
        self._nearby = NOBODY
        """The follower that the leader has named, for it is in this rack."""
        self._reader = reader
        self._world = world
        self._client = client
        self._versions = versions
        self._chance = chance

    async def run(self) -> None:
        while True:
            if not await self._turn():
                self._client.refresh()
                await asyncio.sleep(self._chance.uniform(0.02, 0.1))

    async def _turn(self) -> bool:
        """Read once; whether somebody led."""
        reader, leader = self._reader, self._reader.leader
        if leader is None:
            return False
        nearby, self._nearby = self._nearby, NOBODY
        near = self._client.brokers.get(nearby, leader.address)
        try:
            connection = await self._client.connection(near)
            if not await self._read(leader, connection, is_led=near == leader.address):
                return False
            if self._nearby == NOBODY and near != leader.address and self._chance.random() < STAYS_NEARBY:
                self._nearby = nearby
            if self._chance.random() < LOOK_UPS:
                await reader.look_up(leader)
        except (ConnectionError, Disconnected) as error:
            self._world.trace.say(self.name, f"{reader.place} at {reader.position}: {error}")
            return False
        return True

    async def _read(self, leader: Leader, connection: KafkaConnection, *, is_led: bool) -> bool:
        reader, wait_ms = self._reader, self._chance.choice(WAIT_MS)
        topic = {
            **topic_of(reader.place, leader, self._versions, "topic"),
            "partitions": [reader.wanted(leader)],
        }
        request = _request(wait_ms, NO_SESSION, WITHOUT_SESSION_EPOCH, [topic], [])
        if self.rack:
            request["rack_id"] = self.rack
        known = reader.known(leader)
        answer = await connection.send(
            FETCH, self._versions.fetch, request, wait_ms / 1000 + ANSWER_SECONDS_MAX
        )
        if answer.error_code:
            self._world.violate(f"{self.name}: {reader.place} cannot be read: {answer.error_code.name}")
        result = answer.responses[0].partitions[0]
        if not is_led:
            return reader.on_followers_result(known, result)
        self._nearby = getattr(result, "preferred_read_replica", NOBODY)
        if self._nearby != NOBODY:
            self._world.trace.say(self.name, f"{reader.place} is nearer at broker {self._nearby}")
        return await reader.on_result(leader, known, result)


class _Session:
    """What one broker knows of what is wanted of it."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = NEW_SESSION_EPOCH
        self.known: dict[Reader, dict[str, Any]] = {}

    def begin_anew(self) -> None:
        """Nobody knows what became of the last request: the next one ends the session and begins another."""
        self.epoch = NEW_SESSION_EPOCH
        self.known = {}

    def on_answer(self, session_id: int) -> None:
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.begin_anew()
        else:
            self.epoch += 1


class SessionConsumer:
    """Reads all partitions of a topic from their beginnings, for ever, with a session at each broker that it asks."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        readers: Sequence[Reader],
        versions: Versions,
        chance: random.Random,
    ) -> None:
        self.name = client.name
        self._readers = readers
        self._world = world
        self._client = client
        self._versions = versions
        self._chance = chance
        self._asks_one = chance.random() < 0.5
        self._one = ""
        """Who is asked for everything; each is asked for what it leads where nobody is."""

    async def run(self) -> None:
        asked: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._choose()
                for address in self._client.brokers.values():
                    if address not in asked:
                        asked.add(address)
                        tasks.create_task(self._read_from(address), name=f"{self.name} at {address}")
                await asyncio.sleep(self._chance.uniform(0.5, 1.0) * REFRESH_SECONDS)

    def _choose(self) -> None:
        brokers = list(self._client.brokers.values())
        if self._asks_one and brokers and (self._one not in brokers or self._chance.random() > STAYS):
            self._one = self._chance.choice(brokers)

    def _asked_of(self, address: str) -> dict[Reader, Leader]:
        led = {reader: leader for reader in self._readers if (leader := reader.leader) is not None}
        return {reader: leader for reader, leader in led.items() if (self._one or leader.address) == address}

    async def _read_from(self, address: str) -> None:
        session = _Session()
        while True:
            asked, is_well = self._asked_of(address), False
            if asked:
                try:
                    is_well = await self._read(address, session, asked)
                except (ConnectionError, Disconnected) as error:
                    self._world.trace.say(self.name, f"from {address}: {error}")
                    session.begin_anew()
                    self._one = ""
            if not is_well:
                self._client.refresh()
                await asyncio.sleep(self._chance.uniform(0.02, 0.1))

    async def _read(self, address: str, session: _Session, asked: dict[Reader, Leader]) -> bool:
        """Read once; whether each that was told of has a leader. Raises ConnectionError, Disconnected."""
        connection = await self._client.connection(address)
        wanted = {reader: reader.wanted(leader) for reader, leader in asked.items()}
        changed = [reader for reader in wanted if session.known.get(reader) != wanted[reader]]
        forgotten = [reader for reader in session.known if reader not in wanted]
        wait_ms = self._chance.choice(WAIT_MS)
        leader = next(iter(asked.values()))
        request = _request(
            wait_ms,
            session.session_id,
            session.epoch,
            self._topics(leader, [wanted[reader] for reader in changed]),
            self._topics(leader, [reader.place.partition for reader in forgotten]),
        )
        known = {reader: reader.known(leader) for reader, leader in asked.items()}
        session.known = wanted
        seconds = wait_ms / 1000 + ANSWER_SECONDS_MAX
        answer = await connection.send(FETCH, self._versions.fetch, request, seconds)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.none:
            if code not in SESSION_IS_GONE:
                self._world.violate(f"{self.name}: nothing can be read from {address}: {code.name}")
            session.session_id = NO_SESSION
            session.begin_anew()
            return True
        session.on_answer(answer.session_id)
        by_number = {reader.place.partition: reader for reader in asked}
        is_well = True
        for topic in answer.responses:
            for result in topic.partitions:
                reader = by_number[result.partition_index]
                is_led = await reader.on_result(asked[reader], known[reader], result)
                is_well = is_well and is_led
        if self._chance.random() < LOOK_UPS:
            reader = self._chance.choice(list(asked))
            await reader.look_up(asked[reader])
        return is_well

    def _topics(self, leader: Leader, partitions: Sequence[Any]) -> list[dict[str, Any]]:
        if not partitions:
            return []
        place = self._readers[0].place
        return [{**topic_of(place, leader, self._versions, "topic"), "partitions": partitions}]


def _request(
    wait_ms: int,
    session_id: int,
    session_epoch: int,
    topics: list[dict[str, Any]],
    forgotten: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 50_000,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": topics,
        "forgotten_topics_data": forgotten,
    }
