"""A client of Kafka's, as its libraries are: knows brokers and leaders by Metadata, and has a connection to each.

What it knows may be old: a broker that has not heard of a change tells what was before it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from history import Place
from kafka_connection import (
    API_VERSIONS_VERSION,
    CREATE_TOPICS,
    INIT_PRODUCER_ID,
    METADATA,
    Disconnected,
    KafkaConnection,
)
from virtual_network import VirtualNetwork
from virtual_sockets import connect
from world import World

from barnabas.wire.schema import API_VERSIONS_KEY

METADATA_VERSION: Final = 12

CONNECT_SECONDS_MAX: Final = 1.5
"""As socket.connection.setup.timeout.ms, for a world that has eight seconds."""

REQUEST_SECONDS_MAX: Final = 2.0
"""As socket.timeout.ms."""

RETRY_SECONDS: Final = 0.1
"""As retry.backoff.ms and reconnect.backoff.ms."""

REFRESH_SECONDS: Final = 1.0
"""As topic.metadata.refresh.interval.ms."""


class Leader(NamedTuple):
    """Who leads a partition, as the client knows it."""

    address: str
    epoch: int
    topic_id: bytes

    def is_newer(self, topic_id: bytes, epoch: int) -> bool:
        """Epochs of a topic that was made again begin anew."""
        return topic_id == self.topic_id and epoch < self.epoch


class KafkaClient:
    """Owner of the connections of one client, and of what it knows."""

    def __init__(self, world: World, name: str, topics: Sequence[str], bootstrap: Sequence[str]) -> None:
        self.name = name
        self._network: VirtualNetwork = world.network
        self._world = world
        self._topics = topics
        self._bootstrap = bootstrap
        self._chance: random.Random = world.chance_of(f"{name}/client")
        self._connections: dict[str, KafkaConnection] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._brokers: dict[int, str] = {}
        self._leaders: dict[Place, Leader] = {}
        self._deleted: set[bytes] = set()
        """Ids of topics: a broker that is behind may still tell of them."""
        self._is_refresh_wanted = asyncio.Event()
        self.avoided = ""
        """The machine that is not asked what another one can be asked."""

    @property
    def brokers(self) -> Mapping[int, str]:
        return self._brokers

    def leader(self, place: Place) -> Leader | None:
        """None while nobody is known to lead; then, and when it was the wrong one, it is asked for."""
        found = self._leaders.get(place)
        if found is None:
            self.refresh()
        return found

    def forget(self, topic: str, topic_id: bytes) -> None:
        """It was deleted."""
        self._deleted.add(topic_id)
        self._leaders = {place: each for place, each in self._leaders.items() if place.topic != topic}

    # -- metadata -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """What is known is wrong."""
        self._is_refresh_wanted.set()

    async def follow(self) -> None:
        """Ask for the metadata when it is wanted, and from time to time."""
        while True:
            try:
                self._take(await self.ask_once(METADATA, METADATA_VERSION, self._metadata_request()))
            except (ConnectionError, Disconnected) as error:
                self.say(f"no metadata: {error}")
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._is_refresh_wanted.wait()
            except TimeoutError:
                pass
            self._is_refresh_wanted.clear()

    def _metadata_request(self) -> dict[str, Any]:
        return {"topics": [{"name": name} for name in self._topics], "allow_auto_topic_creation": False}

    def _take(self, answer: Any) -> None:
        self._brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        for topic in answer.topics:
            topic_id = topic.topic_id.bytes if topic.topic_id else b""
            if topic_id in self._deleted:
                continue
            for partition in topic.partitions:
                place = Place(topic.name, partition.partition_index)
                known = self._leaders.get(place)
                if known is not None and known.is_newer(topic_id, partition.leader_epoch):
                    continue  # it is known better (KIP-320)
                address = self._brokers.get(partition.leader_id)
                if address is None:
                    self._leaders.pop(place, None)
                else:
                    self._leaders[place] = Leader(address, partition.leader_epoch, topic_id)

    # -- connections --------------------------------------------------------------------------------------------

    async def connection(self, address: str) -> KafkaConnection:
        """The one to that broker. Raises ConnectionError."""
        async with self._connecting.setdefault(address, asyncio.Lock()):
            known = self._connections.get(address)
            if known is not None and known.is_open:
                return known
            made = KafkaConnection(self.name)
            try:
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    await connect(self._network, self._network.balanced.get(address, address), made)
                    answer = await made.send(
                        API_VERSIONS_KEY,
                        API_VERSIONS_VERSION,
                        {"client_software_name": "simulated", "client_software_version": "1"},
                        CONNECT_SECONDS_MAX,
                    )
            except (TimeoutError, Disconnected) as error:
                made.close()
                raise ConnectionError(str(error) or "no answer") from error
            if answer.error_code:
                self._world.violate(f"{self.name}: no ApiVersions: {answer.error_code}")
            self._connections[address] = made
            return made

    async def ask_once(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        """The answer of whichever broker. Raises ConnectionError, Disconnected."""
        known = list(self._brokers.values()) if self._chance.random() < 0.8 else []
        known = known or list(self._bootstrap)
        others = [each for each in known if each.partition(":")[0] != self.avoided]
        address = self._chance.choice(others or known)
        made = await self.connection(address)
        return await made.send(api_key, version, body, REQUEST_SECONDS_MAX)

    async def ask_broker(self, broker: int, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        """The answer of this one. Raises ConnectionError, Disconnected."""
        address = self._brokers.get(broker)
        if address is None:
            raise ConnectionError(f"broker {broker} is not known")
        made = await self.connection(address)
        return await made.send(api_key, version, body, REQUEST_SECONDS_MAX)

    async def ask(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        """The answer of whoever gives one in the end."""
        while True:
            try:
                return await self.ask_once(api_key, version, body)
            except (ConnectionError, Disconnected) as error:
                self.say(f"no answer to {api_key}: {error}")
            await asyncio.sleep(RETRY_SECONDS)

    def say(self, what: str) -> None:
        self._world.trace.say(self.name, what)


async def init_producer_id(client: KafkaClient) -> int:
    """A new id for an idempotent producer."""
    while True:
        answer = await client.ask(
            INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 60_000}
        )
        if not answer.error_code:
            return int(answer.producer_id)
        client.say(f"no producer id: {answer.error_code.name}")
        await asyncio.sleep(RETRY_SECONDS)


async def create_topic(client: KafkaClient, topic: Mapping[str, Any]) -> str:
    """Create it, whenever that is; why it cannot be, or nothing."""
    while True:
        answer = await client.ask(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 5_000})
        code = answer.topics[0].error_code
        if code.name in ("none", "topic_already_exists"):  # an answer may have been lost
            return ""
        # A node that is stopping is given no replica.
        if code.name not in ("request_timed_out", "not_controller", "invalid_replication_factor"):
            return f"{code.name} {answer.topics[0].error_message}"
        await asyncio.sleep(RETRY_SECONDS)
