"""How a gateway that stops sends its clients to other ones: what it tells, whom it ends, and its ports one by one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
from gateway_harness import LISTENER, FakeMetadata, Gateway, node_record, request_frame, small_cluster
from prometheus_client import CollectorRegistry

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import Connection
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.inside.patience import Patience
from barnabas.gateway.request_times import RequestTimes
from barnabas.messages.metadata_pb2 import AdvertisedListener, GatewayRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, gateway_key
from barnabas.testing.ports import free_ports
from barnabas.wire.schema import API_VERSIONS_KEY


def gateway_records(**hosts: str) -> list[MetadataRecord]:
    """Gateways and where they are; the gateway itself is `gateway_1`, at the address that the listener tells."""
    records = []
    for name, host in hosts.items():
        listener = AdvertisedListener(name=LISTENER.name, host=host, port=9092, port_per_node=True)
        gateway = GatewayRecord(gateway_id=name.replace("_", "-"), listeners=[listener])
        records.append(MetadataRecord(key=gateway_key(gateway.gateway_id), gateway=gateway))
    return records


HERE, ELSEWHERE = LISTENER.advertised_host, "elsewhere.test"
WHO = ("127.0.0.1", "test")


class Ports:
    """A gateway that listens for three nodes, and a client at each of its ports, while time goes step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **hosts: str) -> None:
        self.steps: asyncio.Queue[float] = asyncio.Queue()
        self.may_go_on: asyncio.Queue[None] = asyncio.Queue()
        self._sleep = self.sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._stepwise)
        monkeypatch.setattr(limits, "STOP_ANSWERS_SECONDS_MAX", 7200)
        self._port = free_ports(3)
        self.gateway = Gateway([*small_cluster(), *gateway_records(**hosts)])
        listener = replace(LISTENER, port=self._port)
        self.sockets = Sockets(self.gateway.parts, (listener,), Faults(), CollectorRegistry())
        self.clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _stepwise(self, seconds: float) -> None:
        if seconds:
            self.steps.put_nowait(seconds)
            await self.may_go_on.get()
        else:
            await self._sleep(0)

    async def open(self) -> None:
        await self.sockets.open(MetadataImage().apply([node_record(node) for node in (1, 2, 3)], 1))
        self.clients = [await self.connect(position) for position in range(3)]
        while len(self.sockets._connections) < 3:
            await asyncio.sleep(0)

    async def connect(self, position: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port + position)

    async def send_away(self) -> list[float]:
        """What is waited for. Who is not sent away yet is served as ever; who is hears an end of file."""
        waited = []
        going = asyncio.ensure_future(self.sockets.send_away())
        for gone in range(4):
            step = asyncio.ensure_future(self.steps.get())
            await asyncio.wait((going, step), return_when=asyncio.FIRST_COMPLETED)
            for reader, _ in self.clients[:gone]:
                assert await reader.read() == b""
            for client in self.clients[gone:]:
                await is_served(*client)
            if going.done():
                step.cancel()
                break
            waited.append(await step)
            self.may_go_on.put_nowait(None)
        await going
        return waited

    def connections(self) -> list[Connection]:
        """In the order in which they came."""
        return sorted(self.sockets._connections, key=lambda each: each.client.connection_id)

    async def is_left_alone(self, *clients: int) -> None:
        """Nobody ends their connections while the gateway looks several times whom it can end."""
        await self.sleep(limits.GOING_SECONDS + 5 * limits.QUIET_LOOK_SECONDS)
        assert not any(self.clients[client][0].at_eof() for client in clients)

    async def close(self) -> None:
        closing = asyncio.ensure_future(self.sockets.close())
        for reader, writer in self.clients:
            assert await reader.read() == b""
            writer.close()
        await closing


async def is_served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    frame = request_frame(API_VERSIONS_KEY, 0, {})
    writer.write(struct.pack(">i", len(frame)) + frame)
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(length)


@pytest.mark.parametrize("names", [{"gateway_2": ELSEWHERE}, {"gateway_1": HERE, "gateway_2": HERE}])
async def test_ports_are_closed_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str]
) -> None:
    """So a client that has a connection to each never has none, for it can come again at another gateway."""
    ports = Ports(monkeypatch, **names)
    await ports.open()
    assert not ports.gateway.parts.sending_away.has_begun
    between = limits.PORTS_APART_SECONDS
    is_elsewhere = "gateway_1" not in names
    waits = [limits.SENDING_AWAY_SECONDS, between, between, between]
    assert await ports.send_away() == (waits if is_elsewhere else waits[:3])
    assert ports.gateway.parts.sending_away.has_begun
    await ports.close()


async def test_who_comes_back_learns_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports(monkeypatch, gateway_2=ELSEWHERE)
    await ports.open()
    await ports.send_away()
    for _, writer in ports.clients:
        writer.close()
    ports.clients = [await ports.connect(position) for position in range(3)]
    for client in ports.clients:
        await is_served(*client)
    await ports.close()
    with pytest.raises(ConnectionRefusedError):
        await ports.connect(0)


async def test_where_others_serve_the_same_address_nobody_else_is_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a load balancer, or where gateways share their ports, who comes again is for one of them."""
    ports = Ports(monkeypatch, gateway_1=HERE, gateway_2=HERE)
    await ports.open()
    going = asyncio.ensure_future(ports.sockets.send_away())
    assert await ports.steps.get() == limits.SENDING_AWAY_SECONDS
    assert not ports.sockets.is_serving
    with pytest.raises(ConnectionRefusedError):
        await ports.connect(0)
    for _ in range(3):
        ports.may_go_on.put_nowait(None)
    await going
    await ports.close()


@asynccontextmanager
async def ports_that_send_away(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ports]:
    """A gateway in the hour in which it sends its clients away to another one."""
    monkeypatch.setattr(limits, "SENDING_AWAY_SECONDS", 3600)
    ports = Ports(monkeypatch, gateway_2=ELSEWHERE)
    await ports.open()
    going = asyncio.ensure_future(ports.sockets.send_away())
    assert await ports.steps.get() == limits.SENDING_AWAY_SECONDS
    yield ports
    monkeypatch.undo()
    going.cancel()
    await ports.close()


async def test_who_was_told_and_has_asked_is_ended_once_nothing_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ports_that_send_away(monkeypatch) as ports:
        quiet, busy, deaf = ports.connections()
        away, refused = ports.gateway.parts.sending_away, RequestTimes()
        for connection in (quiet, busy, deaf):
            away.on_told(connection.client.connection_id, WHO, refused)
        busy.data_received(b"\0\0\0\x10half")
        monkeypatch.setattr(Connection, "unsent_bytes", property(lambda connection: connection is deaf))
        away.on_asked(WHO)
        await ports.is_left_alone(0, 1, 2)
        left_at = asyncio.get_running_loop().time()
        refused.left_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(10):
            assert await ports.clients[0][0].read() == b""
        assert asyncio.get_running_loop().time() - left_at >= limits.GOING_SECONDS
        await ports.is_left_alone(1, 2)
        monkeypatch.setattr(Connection, "unsent_bytes", 0)
        monkeypatch.setattr(Connection, "is_idle", property(lambda connection: connection is not deaf))
        await ports.is_left_alone(1, 2)


@pytest.mark.parametrize(
    ("name", "version", "is_ended"),
    [
        ("apache-kafka-java", "4.3.1", True),
        ("unknown", "unknown", True),
        ("librdkafka", "2.16.1", False),
        ("confluent-kafka-python", "2.16.0-rdkafka-2.16.0", False),
        ("confluent-kafka-dotnet", "2.16.0", False),
        ("node-rdkafka", "3.6.1", False),
        ("kcat", "1.7.1-librdkafka-2.0.2", False),
    ],
)
async def test_librdkafka_is_left_to_go_by_itself(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, is_ended: bool
) -> None:
    """Another client of its name may have asked, while it has not, and knows of no other gateway yet."""
    async with ports_that_send_away(monkeypatch) as ports:
        away, refused = ports.gateway.parts.sending_away, RequestTimes()
        told = ports.connections()[0].client
        told.software.name, told.software.version = name, version
        away.on_told(told.connection_id, WHO, refused)
        away.on_asked(WHO)
        refused.left_at = asyncio.get_running_loop().time()
        if not is_ended:
            await ports.is_left_alone(0)
            return
        async with asyncio.timeout(10):
            assert await ports.clients[0][0].read() == b""


async def test_who_is_throttled_is_ended_once_nothing_is_under_way_and_then_it_is_the_next_ones_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "THROTTLE_SECONDS", 3600)
    async with ports_that_send_away(monkeypatch) as ports:
        first, second, _ = (each.client.connection_id for each in ports.connections())
        throttling, times = ports.gateway.parts.throttling, RequestTimes()
        assert throttling.throttle(first, WHO, times)
        busy = ports.connections()[0]
        monkeypatch.setattr(Connection, "unsent_bytes", property(lambda connection: connection is busy))
        times.left_at = asyncio.get_running_loop().time()
        await ports.is_left_alone(0, 1, 2)
        assert not throttling.throttle(second, WHO, RequestTimes())
        monkeypatch.setattr(Connection, "unsent_bytes", 0)
        async with asyncio.timeout(10):
            assert await ports.clients[0][0].read() == b""
        await ports.is_left_alone(1, 2)
        assert throttling.throttle(second, WHO, RequestTimes())


async def test_who_comes_back_nevertheless_is_told_for_a_moment_and_left_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ports_that_send_away(monkeypatch) as ports:
        away, refused = ports.gateway.parts.sending_away, RequestTimes()
        late = await ports.connect(0)
        while len(ports.sockets._connections) < 4:
            await asyncio.sleep(0)
        back = ports.connections()[-1].client.connection_id
        assert away.is_telling(back)
        away.on_told(back, WHO, refused)
        away.on_asked(WHO)
        refused.left_at = asyncio.get_running_loop().time()
        await ports.sleep(limits.GOING_SECONDS * 2 + limits.TELLING_SECONDS)
        assert (away.has_had_time_to_go(back), away.is_telling(back)) == (True, False)
        await is_served(*late)
        late[1].close()


async def test_ports_are_apart_for_a_moment_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; and who was at the last one can come back as well."""
    monkeypatch.setattr(limits, "PORTS_APART_SECONDS", 3600)
    ports = Ports(monkeypatch, gateway_2=ELSEWHERE)
    await ports.open()
    between = limits.PORTS_SECONDS_MAX / 3
    assert await ports.send_away() == [limits.SENDING_AWAY_SECONDS, between, between, 3600]
    await ports.close()


async def test_a_broker_lets_clients_in_until_it_ends_their_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told of at its own address to the end: nobody else serves that, though all listeners look alike."""
    ports = Ports(monkeypatch)
    listener = AdvertisedListener(name=LISTENER.name, host=HERE, port=9092, port_per_node=True)
    for node_id in (1, 2):
        own = GatewayRecord(gateway_id=f"gateway-{node_id}", node_id=node_id, listeners=[listener])
        metadata = cast(FakeMetadata, ports.gateway.parts.metadata)
        metadata.apply(MetadataRecord(key=gateway_key(own.gateway_id), gateway=own))
    await ports.open()
    going = asyncio.ensure_future(ports.sockets.send_away())
    assert await ports.steps.get() == limits.SENDING_AWAY_SECONDS
    assert ports.sockets.is_serving
    late = await ports.connect(0)
    await is_served(*late)
    ports.may_go_on.put_nowait(None)
    assert await ports.steps.get() == limits.PORTS_APART_SECONDS
    with pytest.raises(ConnectionRefusedError):
        await ports.connect(0)
    assert await late[0].read() == b""
    late[1].close()
    for _ in range(2):
        ports.may_go_on.put_nowait(None)
    await going
    await ports.close()


@pytest.mark.parametrize("names", [{"gateway_1": HERE}, {}])
async def test_nobody_is_sent_away_where_there_is_nowhere_else_to_go(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str]
) -> None:
    ports = Ports(monkeypatch, **names)
    await ports.open()
    assert await ports.send_away() == []
    assert not ports.gateway.parts.sending_away.has_begun
    assert ports.sockets.is_serving
    await ports.close()


@pytest.mark.parametrize("names", [{}, {"gateway_2": ELSEWHERE}])
async def test_nobody_waits_for_a_coordinator_in_a_gateway_that_goes(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str]
) -> None:
    ports, ended = Ports(monkeypatch, **names), []
    monkeypatch.setattr(Patience, "end", lambda _: ended.append(True))
    await ports.open()
    await ports.send_away()
    assert len(ended) == 1
    await ports.close()
    assert len(ended) == 2


async def test_where_nobody_is_connected_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports(monkeypatch, gateway_2=ELSEWHERE)
    assert await ports.send_away() == []
    await ports.sockets.close()
