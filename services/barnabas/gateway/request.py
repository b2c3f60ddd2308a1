"""What a handler gets: one decoded request and where it came from; and what it is: a row of the handler table."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.gateway import limits
from barnabas.gateway.clients.held import Held
from barnabas.gateway.clients.listeners import Endpoint, Listener, one_broker_id, visible_brokers
from barnabas.gateway.clients.own_gateways import starting_nodes
from barnabas.gateway.clients.resends import Resends
from barnabas.gateway.clients.sending_away import Who
from barnabas.gateway.clients.sequence_gaps import SequenceGaps
from barnabas.gateway.clients.turns import ALONE, Turn
from barnabas.gateway.clients.unsettled import Unsettled
from barnabas.gateway.clients.waits import NOBODY_COUNTS, Wait
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.image import MetadataImage
from barnabas.wire.requests import RequestHeader
from barnabas.wire.responses import Body

if TYPE_CHECKING:
    from barnabas.gateway.inside.coordinator_call import CoordinatorCall
    from barnabas.gateway.parts import GatewayParts

Answer = Body | bytes | list[bytes | memoryview] | None
"""A body to encode, or a whole frame (in pieces) that is encoded already, or nothing to send (acks=0)."""


@dataclass(slots=True)
class Software:
    """What the client says that it is, in ApiVersions from v3 on (KIP-511)."""

    name: str = "unknown"
    version: str = "unknown"

    @property
    def is_java(self) -> bool:
        """Whether it is the client of Apache Kafka itself."""
        return self.name == "apache-kafka-java"

    @property
    def is_librdkafka(self) -> bool:
        """Whether it is librdkafka, or built on it: that says so in its name or its version, or is Confluent's."""
        return any("rdkafka" in text for text in (self.name, self.version)) or self.name.startswith(
            "confluent-kafka-"
        )


@dataclass(frozen=True, slots=True)
class Client:
    """Who is at the other end of a connection."""

    connection_id: int
    host: str
    """The peer's address as text."""
    local_host: str
    """The local address that the client connected to: what `auto` advertises."""
    listener: Listener
    position: int = 0
    """The position of the node whose port the client connected to."""
    port: int = 0
    """The peer's port."""
    software: Software = field(default_factory=Software, compare=False)
    held: Held = field(default_factory=Held, compare=False)
    gaps: SequenceGaps = field(default_factory=SequenceGaps, compare=False)
    unsettled: Unsettled = field(default_factory=Unsettled, compare=False)
    resends: Resends = field(default_factory=Resends, compare=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One decoded request. `body` is kio's dataclass of the request's version."""

    header: RequestHeader
    body: Any
    client: Client
    parts: GatewayParts
    times: RequestTimes = field(default_factory=RequestTimes, compare=False)
    turn: Turn = ALONE
    """When a Produce request may hand its batches over."""
    wait: Wait = field(default=NOBODY_COUNTS, compare=False)
    """Entered while other services are waited for and nothing else is done."""

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def image(self) -> MetadataImage:
        """The newest metadata; take it once per request, so that the answer is of one piece."""
        return self.parts.metadata.image

    def get(self, name: str, default: Any) -> Any:
        """A field of the body, or `default` where the request's version has no such field."""
        return getattr(self.body, name, default)

    @property
    def who(self) -> Who:
        """The client, as it is known on all its connections."""
        return self.client.host, self.header.client_id or ""

    @property
    def timeout_seconds(self) -> float:
        """How long other services may take to answer: the client's own timeout and a grace, where it names one."""
        timeout = self.get("timeout", None)
        if timeout is None:
            return limits.CALL_TIMEOUT_SECONDS
        return max(0, milliseconds(timeout)) / 1000 + limits.ANSWER_GRACE_SECONDS

    def brokers(self, image: MetadataImage) -> Mapping[int, Endpoint]:
        """The brokers that this client is to see, by id."""
        return self._brokers(image, ())

    def brokers_to_show(self, image: MetadataImage) -> Mapping[int, Endpoint]:
        """The same, and those that were fenced a moment ago, or have only been started.

        A client of librdkafka that is told of brokers without the one that it asks ends its connection to that, and
        what waits for a coordinator there may wait for ever.
        """
        return self._brokers(image, [*self.parts.lately_fenced.still_shown(), *starting_nodes(image)])

    def _brokers(self, image: MetadataImage, fenced_but_shown: Collection[int]) -> Mapping[int, Endpoint]:
        client, parts = self.client, self.parts
        return visible_brokers(
            image, client.listener, client.local_host, fenced_but_shown, parts.own_gateways.of
        )

    def addressed_node(self, image: MetadataImage) -> int | None:
        """The id of the broker that the client believes to talk to; None where one broker stands for all."""
        if not self.client.listener.port_per_node:
            return None
        position = self.client.position
        return next((node.node_id for node in image.nodes.values() if node.position == position), None)

    def addressed_nodes(self, image: MetadataImage) -> list[int]:
        """The ids of the nodes that the broker which the client believes to talk to stands for."""
        if not self.client.listener.port_per_node:
            return [node.node_id for node in image.live_nodes()]
        node_id = self.addressed_node(image)
        return [] if node_id is None else [node_id]

    def brokers_here(self, image: MetadataImage) -> Collection[int]:
        """The ids of the brokers that the client is told to find at the port that it has come to."""
        client = self.client
        return [
            broker_id
            for broker_id, told in self.brokers(image).items()
            if client.listener.is_at(told, client.local_host, client.position)
        ]

    def shown_leader(self, image: MetadataImage, leader: int) -> int:
        """The broker id that this client is to see as leader where the leader is node `leader` (-1 stays -1)."""
        if leader < 0 or self.client.listener.port_per_node:
            return leader
        return one_broker_id(image)


@dataclass(frozen=True, slots=True)
class Handler:
    """A row of the handler table: one Kafka API, the versions served, and the function that serves it.

    `lacks` says in one sentence what is knowingly missing; it goes into docs/compatibility.md.
    """

    api_key: int
    versions: tuple[int, int]
    handle: Callable[[Request], Awaitable[Answer]]
    advertised_from: int | None = None
    """The lowest version that ApiVersions shows, where it is not the lowest served."""
    advertised_when: Callable[[GatewayParts], bool] | None = None
    """Whether ApiVersions shows the API now; always when None. It is served in any case."""
    unanswered: ErrorCode = ErrorCode.request_timed_out
    """What clients hear when the service behind it does not answer and `handle` says no code of its own: one that they
    retry on. As it stands it is the code of what goes to the controller: Kafka's brokers say it when they forward a
    request in vain.
    """
    may_wait: bool = False
    """Whether it may wait for others, and a client that hears nothing just sends it again: a gateway that stops leaves
    it unanswered.
    """
    call: CoordinatorCall | None = None
    """The call of a coordinator that `handle` makes, where that is all: `plain_calls` may make it without a task."""
    lacks: str = ""


def milliseconds(duration: datetime.timedelta) -> int:
    """A duration of kio's as Kafka sent it."""
    return duration.days * 86_400_000 + duration.seconds * 1000 + duration.microseconds // 1000
