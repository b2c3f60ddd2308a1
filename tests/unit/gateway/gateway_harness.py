"""A gateway without sockets: frames in, decoded answers out, with the other services replaced by fakes."""

from __future__ import annotations

import asyncio
import io
import random
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.clients.listeners import Listener
from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.inside.links import Links
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request import Client
from barnabas.gateway.request_times import RequestTimes
from barnabas.gateway.telemetry.client_telemetry import ClientTelemetry
from barnabas.gateway.telemetry.export import TelemetryForwarder
from barnabas.gateway.telemetry.metrics import TelemetryMetrics
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import no_network, seeded_environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.metadata_pb2 import (
    ClusterRecord,
    ConfigRecord,
    CoordinatorRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    TopicRecord,
)
from barnabas.metadata.image import (
    CLUSTER_KEY,
    GROUP_METADATA_TOPIC,
    MetadataImage,
    config_key,
    coordinator_key,
    node_key,
    partition_key,
    topic_key,
)
from barnabas.metadata.producer_ids import ProducerIds
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.wire import responses
from barnabas.wire.schema import API_VERSIONS_KEY, is_flexible, response_schema

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "broker.test", 9092, port_per_node=True)
ONE_BROKER_LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "broker.test", 9092, port_per_node=False)
CORRELATION_ID = 77
INSTANCE_ID = b"instance-of-test"
"""The id that every new client instance gets."""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


def node_record(
    node_id: int, *, fenced: bool = False, rack: str = "", position: int | None = None
) -> MetadataRecord:
    """A node in the place of its id, counted from 1, unless it has another."""
    place = node_id - 1 if position is None else position
    node = NodeRecord(node_id=node_id, address="unix:/none", position=place, fenced=fenced, rack=rack)
    return MetadataRecord(key=node_key(node_id), node=node)


def topic_records(
    name: str, leaders: list[int], *, coordinator_id: str = "", identity: bytes = b""
) -> list[MetadataRecord]:
    """A topic whose partition i has leader leaders[i]; -1 for none."""
    identity = identity or topic_id(name)
    records = [
        MetadataRecord(
            key=partition_key(identity, index),
            partition=PartitionRecord(
                topic_id=identity,
                partition=index,
                leader=leader,
                leader_epoch=5,
                replicas=[max(leader, 1)],
                isr=[max(leader, 1)],
                coordinator_id=coordinator_id,
            ),
        )
        for index, leader in enumerate(leaders)
    ]
    topic = TopicRecord(
        name=name,
        topic_id=identity,
        partition_count=len(leaders),
        internal=name == GROUP_METADATA_TOPIC,
    )
    return [*records, MetadataRecord(key=topic_key(name), topic=topic)]


def config_record(resource_type: int, name: str, values: Mapping[str, str]) -> MetadataRecord:
    return MetadataRecord(key=config_key(resource_type, name), config=ConfigRecord(values=dict(values)))


def coordinator_record(coordinator_id: str) -> MetadataRecord:
    coordinator = CoordinatorRecord(coordinator_id=coordinator_id, address=coordinator_id)
    return MetadataRecord(key=coordinator_key(coordinator_id), coordinator=coordinator)


def small_cluster() -> list[MetadataRecord]:
    """Two nodes and a fenced one, one coordinator, topics `orders` (3 partitions, the last leaderless) and `bills`."""
    return [
        MetadataRecord(key=CLUSTER_KEY, cluster=ClusterRecord(cluster_id="cluster-of-the-tests")),
        node_record(1),
        node_record(2, rack="east"),
        node_record(3, fenced=True),
        coordinator_record("c1"),
        *topic_records(GROUP_METADATA_TOPIC, [1], coordinator_id="c1"),
        *topic_records("orders", [1, 2, -1]),
        *topic_records("bills", [1]),
    ]


class FakeMetadata:
    """The metadata subscription: an image that tests change."""

    def __init__(self, records: list[MetadataRecord], controller: Any) -> None:
        self.image = MetadataImage().apply(records, 1)
        self.controller = controller
        self._changed = asyncio.Event()
        self.silent_seconds = 0.0

    def apply(self, *records: MetadataRecord) -> None:
        self.image = self.image.apply(records, self.image.revision + 1)
        self._changed.set()

    def on_change(self, callback: Any) -> None:
        """Links asks for it; the tests never move a service."""

    async def wait_until(self, holds: Callable[[MetadataImage], bool]) -> MetadataImage:
        while not holds(self.image):
            self._changed.clear()
            await self._changed.wait()
        return self.image


class FakeLink:
    """The calls of a link: each is answered by the function of its name in `answers`, or its outcome is unknown."""

    def __init__(self, **answers: Callable[[Any], Any]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any, float | None]] = []

    def __getattr__(self, method: str) -> Any:
        async def call(message: Any, timeout: float | None = None) -> Any:
            self.calls.append((method, message, timeout))
            if method not in self.answers:
                raise OutcomeUnknown(f"{method} is not answered")
            answer = self.answers[method](message)
            return await answer if asyncio.iscoroutine(answer) else answer

        return call


class FakeStream:
    """A coalesced stream: `answer(request)` gives the result, or an exception to fail with."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.answer = answer or (lambda _: Unreachable("nobody is there"))
        self.requests: list[Any] = []
        self.hurried: list[Any] = []
        self.withdrawn: list[Any] = []
        self.given_up: list[Any] = []
        self.timeouts: list[float | None] = []
        self.is_silent = False
        self.waiting_requests = 0
        self.is_full = False
        self.room_bytes = 1 << 40

    def send(
        self, request: Any, size_bytes: int = 0, timeout_seconds: float | None = None
    ) -> asyncio.Future[Any]:
        self.requests.append(request)
        self.timeouts.append(timeout_seconds)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result = self.answer(request)
        if isinstance(result, Exception):
            future.set_exception(result)
        elif result is not None:
            future.set_result(result)
        return future

    def has_room(self, size_bytes: int) -> bool:
        return size_bytes <= self.room_bytes

    def hurry(self, request: Any) -> None:
        self.hurried.append(request)

    def withdraw(self, request: Any) -> None:
        self.withdrawn.append(request)

    def give_up(self, request: Any) -> None:
        self.given_up.append(request)


class FakeLinks(Links):
    """Real look-ups in the image, fake connections: `nodes` by node id, coordinators by address."""

    def __init__(self, metadata: FakeMetadata) -> None:
        super().__init__(cast(MetadataSubscription, metadata), no_network(), StorageStreamCounts())
        self.nodes: dict[int, Any] = {}
        self.coordinators: dict[str, FakeLink] = {}
        self.transactions: dict[str, FakeLink] = {}

    def storage(self, node_id: int) -> Any:
        return self.nodes.get(node_id)

    def coordinator_at(self, address: str) -> Any:
        return self.coordinators.setdefault(address, FakeLink())

    def transactions_at(self, address: str) -> Any:
        return self.transactions.setdefault(address, FakeLink())


class Gateway:
    """A dispatcher over fakes. `ask` sends a body given as plain data and returns the decoded answer."""

    def __init__(
        self,
        records: list[MetadataRecord] | None = None,
        listener: Listener = LISTENER,
        forwarder: TelemetryForwarder | None = None,
    ) -> None:
        self.controller = FakeLink()
        self.metadata = FakeMetadata(small_cluster() if records is None else records, self.controller)
        self.links = FakeLinks(self.metadata)
        self.clock = ManualClock()
        environment = replace(
            seeded_environment(clock=self.clock), new_id=lambda: uuid.UUID(bytes=INSTANCE_ID)
        )
        subscription = cast(MetadataSubscription, self.metadata)
        self.parts = GatewayParts(
            config=GatewayConfig(),
            handlers=HANDLERS,
            clock=self.clock,
            metadata=subscription,
            links=self.links,
            fetch_sessions=FetchSessions(10, random.Random(1)),
            producer_ids=ProducerIds(subscription),
            telemetry=ClientTelemetry(environment, 1_048_576, TelemetryMetrics(), forwarder),
            lines=RareLines(get_logger("gateway"), self.clock.monotonic),
        )
        self.dispatcher = Dispatcher(HANDLERS, self.parts, RequestMetrics())
        self.client = Client(1, "10.1.2.3", "127.0.0.1", listener)

    @property
    def coordinator(self) -> FakeLink:
        link: FakeLink = self.links.coordinator_at("c1")
        return link

    @property
    def transactions(self) -> FakeLink:
        """The coordinator that owns `__transaction_state`, where a test has that topic."""
        link: FakeLink = self.links.transactions_at("c1")
        return link

    def node(self, node_id: int, appends: FakeStream | None = None, fetches: FakeStream | None = None) -> Any:
        """Make a storage node reachable."""
        link: Any = FakeLink()
        link.appends = appends or FakeStream()
        link.fetches = fetches or FakeStream()
        self.links.nodes[node_id] = link
        return link

    async def ask(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        times = RequestTimes()
        pieces = await self.dispatcher.serve(request_frame(api_key, version, body), self.client, times)
        assert pieces is not None
        times.left_at = asyncio.get_running_loop().time()
        return decode_answer(api_key, version, pieces)


def request_frame(api_key: int, version: int, body: Mapping[str, Any]) -> bytes:
    """A frame, without its length, for a request body of plain data (see `barnabas.wire.responses`)."""
    schema: Any = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, responses._builder(schema)(body))
    return request_header(api_key, version) + buffer.getvalue()


def request_header(api_key: int, version: int) -> bytes:
    header = struct.pack(">hhih", api_key, version, CORRELATION_ID, 4) + b"test"
    return header + (b"\0" if is_flexible(api_key, version) else b"")


def decode_answer(api_key: int, version: int, pieces: bytes | list[bytes]) -> Any:
    """The body of an answer; its header is checked."""
    frame = pieces if isinstance(pieces, bytes) else b"".join(pieces)
    length, correlation_id = struct.unpack_from(">ii", frame)
    assert length == len(frame) - 4
    assert correlation_id == CORRELATION_ID
    offset = 9 if api_key != API_VERSIONS_KEY and is_flexible(api_key, version) else 8
    body, size = entity_reader(response_schema(api_key, version))(frame, offset)
    assert offset + size == len(frame)
    return body


def answering(method: str, answer: Any) -> Gateway:
    """A gateway whose coordinator answers calls of `method`."""
    gateway = Gateway()
    gateway.coordinator.answers[method] = answer if callable(answer) else lambda _: answer
    return gateway
