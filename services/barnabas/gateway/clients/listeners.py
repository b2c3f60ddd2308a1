"""Listeners: `name://host:port` as Kafka writes them, and the endpoints that clients are told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.kernel.config import PORT_MAX
from barnabas.kernel.service import StartError
from barnabas.messages.metadata_pb2 import AdvertisedListener, GatewayRecord, NodeRecord
from barnabas.metadata.image import MetadataImage

PORT_PER_NODE = "port"
ONE_BROKER = "one"
_NOT_SERVED = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that clients connect to, and what they are told of it.

    `advertised_host` is empty for `auto`: the local address of the socket that the client used.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    port_per_node: bool

    def is_at(self, told: Endpoint, local_host: str, position: int) -> bool:
        """Whether a client that is sent to `told` comes to the port of this position.

        `local_host` is the local address of the client's socket.
        """
        port = self.advertised_port + (position if self.port_per_node else 0)
        return (told.host, told.port) == (self.advertised_host or local_host, port)

    def record(self) -> AdvertisedListener:
        """The listener as other gateways are to know it."""
        return AdvertisedListener(
            name=self.name,
            host=self.advertised_host,
            port=self.advertised_port,
            port_per_node=self.port_per_node,
        )


class Endpoint(NamedTuple):
    """A broker as a client sees it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def parse_listeners(
    listeners: Sequence[str], advertised: Sequence[str], advertise: str
) -> tuple[Listener, ...]:
    """Read the settings `listeners`, `advertised.listeners` and `advertise`. Raises StartError."""
    if advertise not in (PORT_PER_NODE, ONE_BROKER):
        raise StartError(f"advertise={advertise}: use {PORT_PER_NODE} or {ONE_BROKER}")
    told = {name: (host, port) for name, host, port in map(_parse, advertised)}
    parsed = []
    for name, host, port in map(_parse, listeners):
        wildcard = host in ("", "0.0.0.0", "::")
        advertised_host, advertised_port = told.pop(name, ("" if wildcard else host, port))
        parsed.append(
            Listener(name, host, port, advertised_host, advertised_port, advertise == PORT_PER_NODE)
        )
    if told:
        raise StartError(f"advertised.listeners names {', '.join(told)}, which listeners does not have")
    if len({listener.name for listener in parsed}) != len(parsed):
        raise StartError("listeners: each needs a name of its own")
    return tuple(parsed)


def _parse(text: str) -> tuple[str, str, int]:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdigit() or int(port) > PORT_MAX:
        raise StartError(f"listener {text!r}: expected name://host:port, such as PLAINTEXT://0.0.0.0:9092")
    if name.upper() in _NOT_SERVED:
        # Kafka reads the security protocol from such a name: to serve it in the clear would betray its user.
        raise StartError(
            f"listener {text!r}: TLS and SASL are not served yet, use PLAINTEXT or a name of your own"
        )
    return name.upper(), host.strip("[]"), int(port)


def visible_brokers(
    image: MetadataImage,
    listener: Listener,
    local_host: str,
    fenced_but_shown: Collection[int] = (),
    own_gateway_of: Callable[[int], GatewayRecord | None] = lambda _: None,
) -> Mapping[int, Endpoint]:
    """The brokers that a client on `listener` is told of, by broker id.

    `local_host` is the local address of the client's socket. Under one-broker advertising there is a single entry.
    `own_gateway_of` gives the gateway in a node's process as it was last: that counts while there is none.
    While every node is fenced, all are shown: gateways answer for them, and a client that is told of no broker at all
    gives up the connections that it has (librdkafka then has no coordinator for ten seconds).
    """
    nodes = image.live_nodes() or list(image.nodes.values())
    nodes = [*nodes, *(image.nodes[node_id] for node_id in fenced_but_shown if node_id in image.nodes)]
    if not listener.port_per_node:
        shown = one_broker_id(image)
        rack = image.nodes[shown].rack if shown in image.nodes else ""
        host = listener.advertised_host or local_host
        return {shown: Endpoint(shown, host, listener.advertised_port, rack or None)}
    return {node.node_id: _endpoint(image, node, listener, local_host, own_gateway_of) for node in nodes}


def one_broker_id(image: MetadataImage) -> int:
    """The broker id shown when a listener shows only one: the lowest that ever registered, so that it stays."""
    return min(image.nodes, default=1)


def _endpoint(
    image: MetadataImage,
    node: NodeRecord,
    listener: Listener,
    local_host: str,
    own_gateway_of: Callable[[int], GatewayRecord | None],
) -> Endpoint:
    """Where `node` is reached: the gateway in its own process, also where that was last; else one of its rack, else
    any.
    """
    rack = node.rack or None
    if not listener.advertised_host:
        # Other gateways' `auto` addresses are unknown here, and any gateway serves any request: name ourselves.
        return Endpoint(node.node_id, local_host, listener.advertised_port + node.position, rack)
    candidates = _advertised(image.gateways.values(), listener)
    own = [pair for pair in candidates if pair[0].HasField("node_id") and pair[0].node_id == node.node_id]
    if not own and (last := own_gateway_of(node.node_id)) is not None:
        own = _advertised([last], listener)
    if not (candidates or own):
        return Endpoint(
            node.node_id, listener.advertised_host, listener.advertised_port + node.position, rack
        )
    same_rack = [pair for pair in candidates if node.rack and pair[0].rack == node.rack]
    _, record = max(own or same_rack or candidates, key=lambda pair: _weight(pair[0], node.node_id))
    port = record.port + node.position if record.port_per_node else record.port
    return Endpoint(node.node_id, record.host, port, rack)


def _advertised(
    gateways: Iterable[GatewayRecord], listener: Listener
) -> list[tuple[GatewayRecord, AdvertisedListener]]:
    """Where the gateways have the listener, with an address that others can be told."""
    return [
        (gateway, record)
        for gateway in gateways
        for record in gateway.listeners
        if record.name == listener.name and record.host
    ]


def _weight(gateway: GatewayRecord, node_id: int) -> bytes:
    """Rendezvous hashing: each node goes to the live gateway of the highest weight, so few move when one dies."""
    return hashlib.blake2b(f"{gateway.gateway_id}/{node_id}".encode(), digest_size=8).digest()
