"""The listening sockets and the connections behind them: opened as nodes join, closed when nobody uses them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import AnswerAtOnce, Connection, Forward
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.clients.listeners import Listener, visible_brokers
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.forwarded_produce import ForwardedProduces
from barnabas.gateway.handlers.table import HANDLERS, WAITING_KEYS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.plain_calls import PlainCalls
from barnabas.gateway.plain_fetch import PlainFetches
from barnabas.gateway.plain_produce import PlainProduces
from barnabas.gateway.request import Client
from barnabas.kernel.kept_sockets import kept_addresses, kept_socket, refuse_until_listened
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import StartError
from barnabas.kernel.tracing import is_tracing
from barnabas.links.local_storage import LocalStorage
from barnabas.messages.metadata_pb2 import GatewayRecord
from barnabas.metadata.effective import dynamic_broker_value
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = get_logger("gateway")

ACCEPT_BACKLOG = 1024


class Sockets:
    """Owns the listening sockets and the connections.

    Every listener has one port for each position that a node may have (`advertise=port`), opened as nodes
    join; all of them lead to the same dispatcher. Where a process has its own position only, it is a guest at the ports
    of nodes whose process is away, as far as they are kept bound for it: who comes there is served at once, and sent to
    the node's own process when that is back.
    """

    def __init__(
        self,
        parts: GatewayParts,
        listeners: tuple[Listener, ...],
        faults: Faults,
        registry: CollectorRegistry,
        local: LocalStorage | None = None,
    ) -> None:
        self._parts = parts
        self._listeners = listeners
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._connections: dict[Connection, int] = {}
        """The position of the port of each, in the order in which they came."""
        self._all_lost = asyncio.Event()
        """Set whenever the last connection goes."""
        self._refusing: asyncio.TimerHandle | None = None
        """When ports that were kept bound refuse, if nobody can be served by then."""
        self._connection_ids = itertools.count(1)
        parts.clock.on_jump(self._on_jump)
        self._budget = parts.budget
        self._budget.on_room = self._resume_all
        self._metrics = RequestMetrics()
        self._connection_metrics = ConnectionMetrics(
            self._budget, (listener.name for listener in listeners), parts.unread_answers
        )
        self._dispatcher = Dispatcher(HANDLERS, parts, self._metrics, faults)
        self._answers_at_once: dict[bytes, AnswerAtOnce] = {}
        self._forward: Forward | None = None
        if not is_tracing():
            self._forward = ForwardedProduces(parts, faults).forward
            if local is not None:
                self._answers_at_once = _plain_answers(parts, local, self._metrics, faults)
        for collector in (self._metrics, self._connection_metrics):
            registry.register(collector)

    @property
    def is_serving(self) -> bool:
        """Whether clients are let in at every port."""
        return bool(self._servers) and all(server.is_serving() for server in self._servers.values())

    async def open(self, image: MetadataImage) -> None:
        """Open the ports that `image` asks for and that are not open yet. Raises StartError for a taken port.

        Until the metadata know a storage node the ports are only taken: whoever was let in would learn of a cluster
        without brokers, and librdkafka then asks nobody again for ten seconds, or as long as it has that connection.
        """
        wanted = set()
        for listener in self._listeners:
            for position in self._positions(image, listener) if listener.port_per_node else (0,):
                wanted.add((listener.name, position))
                if (listener.name, position) not in self._servers:
                    self._servers[listener.name, position] = await self._listen(listener, position)
        if self._parts.config.own_position_only >= 0:
            self._leave(self._servers.keys() - wanted)
        if not image.nodes:
            if self._refusing is None:
                wait_seconds = limits.KEPT_UNSERVED_SECONDS_MAX
                self._refusing = asyncio.get_running_loop().call_later(wait_seconds, self._refuse_unserved)
            return
        for (name, position), server in self._servers.items():
            if not server.is_serving():
                try:
                    await server.start_serving()
                except (
                    OSError
                ) as error:  # a port that is kept bound, and that somebody else has listened at first
                    raise StartError(_cannot_listen(*self._address(name, position), error)) from error

    def _refuse_unserved(self) -> None:
        """Ports that were kept bound, and that the process before this one listened at, take connections for nobody.

        Unless others are guests there: the socket is one, so it would be shut down for them, too.
        """
        if kept_addresses() - {self._address(*port) for port in self._servers}:
            return
        for (name, position), server in self._servers.items():
            kept = None if server.is_serving() else kept_socket(*self._address(name, position))
            if kept is not None:
                with kept:
                    refuse_until_listened(kept)

    def _address(self, name: str, position: int) -> tuple[str, int]:
        listener = next(each for each in self._listeners if each.name == name)
        return listener.host, listener.port + position

    def _positions(self, image: MetadataImage, listener: Listener) -> Iterable[int]:
        """The positions whose ports are opened here: those of all nodes; or that of the node in this process, and those
        that are left alone.
        """
        config = self._parts.config
        own = config.own_position_only
        if own < 0:
            return range(
                max(config.ports_per_listener, *(node.position + 1 for node in image.nodes.values()), 0)
            )
        left, kept = positions_left_alone(image) - {own}, kept_addresses()
        return (own, *(position for position in left if (listener.host, listener.port + position) in kept))

    def _leave(self, ports: Iterable[tuple[str, int]]) -> None:
        """Those whom they belong to are back: who comes is theirs, and who is here goes there."""
        left = list(ports)
        for port in left:
            self._servers.pop(port).close()
        positions = {position for _, position in left}
        for connection in [each for each, at in self._connections.items() if at in positions]:
            connection.drain()

    async def follow(self, metadata: MetadataSubscription) -> None:
        """Open more ports as nodes join."""
        revision = -1
        while True:
            wanted = revision
            image = await metadata.wait_until(lambda image, wanted=wanted: image.revision > wanted)  # type: ignore[misc]
            revision = image.revision
            try:
                await self.open(image)
            except StartError as error:
                log.error("cannot open a port for a node", reason=str(error))

    async def _listen(self, listener: Listener, position: int) -> asyncio.Server:
        port = listener.port + position
        loop = asyncio.get_running_loop()
        make = partial(loop.create_server, lambda: self._accept(listener, position), start_serving=False)
        try:
            kept = kept_socket(listener.host, port)
            if kept is not None:
                server = await make(sock=kept, backlog=ACCEPT_BACKLOG)
            else:
                host = listener.host or None
                server = await make(host=host, port=port, backlog=ACCEPT_BACKLOG, reuse_port=True)
        except OSError as error:
            raise StartError(_cannot_listen(listener.host, port, error)) from error
        log.info("listening", listener=listener.name, address=f"{listener.host}:{port}")
        return server

    def _accept(self, listener: Listener, position: int) -> Connection:
        # A guest takes no short way: those are for the node in this process, which nobody means who comes here.
        is_guest = self._parts.config.own_position_only not in (-1, position)
        connection = Connection(
            lambda transport: self._admit(connection, transport, listener, position),
            self._dispatcher.serve,
            self._budget,
            lambda lost: self._on_lost(lost, listener),
            self._parts.config.socket_request_max_bytes,
            self._metrics,
            self._connection_metrics,
            {} if is_guest else self._answers_at_once,
            self._parts.unread_answers,
            self._forward,
            WAITING_KEYS,
        )
        return connection

    def _on_lost(self, connection: Connection, listener: Listener) -> None:
        self._connections.pop(connection, None)
        self._parts.fetch_sessions.close_of_connection(connection.client.connection_id)
        if not self._connections:
            self._all_lost.set()
        self._connection_metrics.on_closed(listener.name)

    def _admit(
        self, connection: Connection, transport: asyncio.Transport, listener: Listener, position: int
    ) -> Client:
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        limit = dynamic_broker_value(
            self._parts.metadata.image, "max.connections", self._parts.config.max_connections
        )
        if len(self._connections) >= limit:
            self._parts.lines.warning("too many connections", limit=limit)
            asyncio.get_running_loop().call_soon(connection.close)
        self._connections[connection] = position
        self._connection_metrics.on_opened(listener.name)
        host, port = peer[:2] if peer else ("", 0)
        local_host = local[0] if local else ""
        return Client(next(self._connection_ids), host, local_host, listener, position, port)

    def _resume_all(self) -> None:
        for connection in list(self._connections):
            connection.budget_has_room()

    def _on_jump(self, seconds: float) -> None:
        """The clock went forward: who was silent through it has a moment left to show that the connection is used."""
        now, idle_ms = asyncio.get_running_loop().time(), self._parts.config.connections_max_idle_ms
        for connection in self._connections:
            left = idle_ms / 1000 - (now - connection.last_activity)
            connection.last_activity -= min(seconds, left - min(left, limits.AFTER_JUMP_SECONDS))

    async def close_idle_forever(self) -> None:
        """Close connections that were silent for connections.max.idle.ms."""
        loop, idle_seconds = asyncio.get_running_loop(), self._parts.config.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(limits.IDLE_CHECK_SECONDS)
            for connection in list(self._connections):
                if connection.is_idle and loop.time() - connection.last_activity > idle_seconds:
                    connection.close()

    async def send_away(self) -> None:
        """Have clients come again at other gateways, where there are any, before this one closes.

        First producers are told to ask where to go, or throttled. The connections of who has asked, or is throttled,
        are ended a moment later, once nothing is under way on them, but for librdkafka's. Then those to one port after
        the other are, so that few clients have lost all of them at once: librdkafka forgets what it knows then, and
        begins anew, for up to two seconds. Who did not ask, and comes back to a port that clients are told of no more,
        is served and learns where to go.
        """
        self._parts.patience.end()
        parts, positions = self._parts, sorted(set(self._connections.values()))
        if not positions or not self._other_gateways():
            return
        shown = self._shown_ports()
        for port, server in self._servers.items():
            if port in shown and self._is_shared(port[0]):
                server.close()  # who comes from now on is for those who stay
        parts.sending_away.begin()
        parts.throttling.begin(each.client.connection_id for each in self._connections)
        until = asyncio.get_running_loop().time() + limits.SENDING_AWAY_SECONDS
        self._end_who_can_go(list(self._connections), until)
        await asyncio.sleep(limits.SENDING_AWAY_SECONDS)
        pause_seconds = min(limits.PORTS_APART_SECONDS, limits.PORTS_SECONDS_MAX / len(positions))
        for position in positions:
            for port, server in self._servers.items():
                if port in shown and port[1] == position:
                    server.close()
            for connection in [each for each, at in self._connections.items() if at == position]:
                connection.drain()
            if position != positions[-1]:
                await asyncio.sleep(pause_seconds)
        if any(server.is_serving() for server in self._servers.values()):
            await asyncio.sleep(limits.PORTS_APART_SECONDS)

    def _end_who_can_go(self, connections: list[Connection], until: float) -> None:
        """Until that time of the event loop, end those of the connections whose clients are throttled, or were told,
        have asked, and have had time to go, once nothing is under way on them.

        A client that stays as long as it has its connection loses no time: it waits just then to send again what was
        refused, or to be throttled no longer. One whose batch is cut off would wait once more. Who comes back
        nevertheless is left to the end.

        Librdkafka's are not among them: it goes by itself, and where it has this connection and no other one yet, it
        would begin anew if it lost it. Whether it has gone nobody sees here, as others may have asked under its name.
        """
        away, throttling = self._parts.sending_away, self._parts.throttling
        loop, left = asyncio.get_running_loop(), []
        for connection in connections:
            if connection.client.software.is_librdkafka:
                continue
            connection_id = connection.client.connection_id
            can_go = throttling.is_silent(connection_id) or away.has_had_time_to_go(connection_id)
            if can_go and _is_quiet(connection):
                connection.drain()
                throttling.on_ended(connection_id)
            else:
                left.append(connection)
        if left and loop.time() < until:
            loop.call_later(limits.QUIET_LOOK_SECONDS, self._end_who_can_go, left, until)

    def _other_gateways(self) -> list[GatewayRecord]:
        gateways, own_id = self._parts.metadata.image.gateways, self._parts.config.gateway_id
        return [gateway for gateway_id, gateway in gateways.items() if gateway_id != own_id]

    def _shown_ports(self) -> set[tuple[str, int]]:
        """Those, by listener and position, at whose address clients are told of a broker still."""
        image, own_gateway_of = self._parts.metadata.image, self._parts.own_gateways.of
        shown = set()
        for listener in self._listeners:
            brokers = visible_brokers(image, listener, "", image.nodes.keys(), own_gateway_of).values()
            shown |= {
                (name, position)
                for name, position in self._servers
                if name == listener.name and any(listener.is_at(told, "", position) for told in brokers)
            }
        return shown

    def _is_shared(self, name: str) -> bool:
        """Whether other gateways serve the listener at the same address, each all of its ports."""
        own = next(each for each in self._listeners if each.name == name).record()
        return any(
            (record.name, record.host, record.port) == (own.name, own.host, own.port) and own.host
            for gateway in self._other_gateways()
            if not gateway.HasField("node_id")
            for record in gateway.listeners
        )

    async def close(self) -> None:
        """Stop listening, and close every connection once what is under way on it is answered.

        What is not within STOP_ANSWERS_SECONDS_MAX is cut off.
        """
        self._parts.patience.end()
        if self._refusing is not None:
            self._refusing.cancel()  # who comes to a kept port from now on is the next process's
        for server in self._servers.values():
            server.close()
        self._all_lost.clear()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.STOP_ANSWERS_SECONDS_MAX):
                    await self._all_lost.wait()
        for connection in list(self._connections):
            connection.cut_off()


def _is_quiet(connection: Connection) -> bool:
    """Whether nothing is under way on it in either direction, as far as this end can know."""
    return connection.is_idle and not (connection.partial_bytes or connection.unsent_bytes)


def positions_left_alone(image: MetadataImage) -> set[int]:
    """Those of the nodes whose own process is not there to serve clients, as far as the metadata know."""
    attended = {gateway.node_id for gateway in image.gateways.values() if gateway.HasField("node_id")}
    return {node.position for node in image.nodes.values() if node.fenced or node.node_id not in attended}


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    return f"cannot listen at {host}:{port}: {error.strerror or error}"


def _plain_answers(
    parts: GatewayParts, local: LocalStorage, metrics: RequestMetrics, faults: Faults
) -> dict[bytes, AnswerAtOnce]:
    """What answers at once which requests, by the API key that they begin with."""
    calls = PlainCalls(HANDLERS, parts, metrics, faults)
    return {
        **dict.fromkeys(calls.keys(), calls.answer),
        b"\0\0": PlainProduces(parts.metadata, local, metrics, faults).answer,
        b"\0\1": PlainFetches(parts, local, metrics, faults).answer,
    }
