"""Ports that are kept bound for a process: who comes to them, also while it is away, or knows of no node yet."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from dataclasses import replace

import pytest
from gateway_harness import LISTENER, Gateway, node_record, request_frame
from prometheus_client import CollectorRegistry

from barnabas.gateway import limits
from barnabas.gateway.clients.sockets import Sockets, positions_left_alone
from barnabas.gateway.faults.injection import Faults
from barnabas.kernel.kept_sockets import KEPT_SOCKETS, describe_kept
from barnabas.kernel.service import StartError
from barnabas.messages.metadata_pb2 import GatewayRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, gateway_key
from barnabas.testing.ports import free_ports
from barnabas.wire.schema import API_VERSIONS_KEY

IMAGE = MetadataImage().apply([node_record(1)], 1)


async def test_a_kept_port_takes_connections_also_when_nobody_serves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_ports(1)
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", port))
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port): kept.fileno()}))
        listener = replace(LISTENER, port=port)
        first = Sockets(Gateway().parts, (listener,), Faults(), CollectorRegistry())
        await first.open(MetadataImage())
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await first.open(IMAGE)
        await first.close()
        with socket.create_connection(("127.0.0.1", port)):
            second = Sockets(Gateway().parts, (listener,), Faults(), CollectorRegistry())
            await second.open(IMAGE)
            while not second._connections:
                await asyncio.sleep(0)
        await second.close()


def gateway_of(node_id: int) -> MetadataRecord:
    name = f"gateway-{node_id}"
    return MetadataRecord(key=gateway_key(name), gateway=GatewayRecord(gateway_id=name, node_id=node_id))


def test_the_ports_of_nodes_are_left_alone_without_their_own_process() -> None:
    both = MetadataImage().apply([node_record(1), node_record(2), gateway_of(1), gateway_of(2)], 1)
    assert positions_left_alone(both) == set()
    assert positions_left_alone(both.apply([node_record(2, fenced=True)], 2)) == {1}
    assert positions_left_alone(both.apply([MetadataRecord(key=gateway_key("gateway-1"))], 2)) == {0}


async def test_who_comes_to_a_node_that_is_away_is_served_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait for the node's next process, although others lead by now."""
    port, ask = free_ports(2), request_frame(API_VERSIONS_KEY, 0, {})
    both = MetadataImage().apply([node_record(1), node_record(2), gateway_of(1), gateway_of(2)], 1)
    with socket.socket() as own, socket.socket() as other:
        descriptors = {}
        for number, sock in ((port, own), (port + 1, other)):
            sock.bind(("127.0.0.1", number))
            sock.listen()  # as the processes before did
            descriptors["127.0.0.1", number] = sock.fileno()
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept(descriptors))
        parts = Gateway().parts
        parts = replace(parts, config=replace(parts.config, own_position_only=0))
        sockets = Sockets(parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
        await sockets.open(both)
        waiting, writer = await asyncio.open_connection("127.0.0.1", port + 1)
        writer.write(struct.pack(">i", len(ask)) + ask)
        assert sockets._servers.keys() == {("PLAINTEXT", 0)}
        await sockets.open(both.apply([node_record(2, fenced=True)], 2))
        (length,) = struct.unpack(">i", await waiting.readexactly(4))
        await waiting.readexactly(length)
        ((connection, position),) = sockets._connections.items()
        assert (position, connection._answers_at_once) == (1, {}), "the short way leads to the node here"
        await sockets.open(both)
        assert await waiting.read() == b"", "it is to go to the node itself"
        writer.close()
        assert sockets._servers.keys() == {("PLAINTEXT", 0)}
        _, late = await asyncio.open_connection("127.0.0.1", port + 1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not sockets._connections, "it waits for the node's own process"
        late.close()
        await sockets.close()


async def test_a_process_without_descriptors_is_no_guest_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of the node that is away have just come to it, each with a connection."""

    def dup(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    port = free_ports(2)
    parts = Gateway().parts
    parts = replace(parts, config=replace(parts.config, own_position_only=0))
    sockets = Sockets(parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    image = MetadataImage().apply([node_record(1)], 1)
    await sockets.open(image)
    with socket.create_server(("127.0.0.1", port + 1)) as other:
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port + 1): other.fileno()}))
        monkeypatch.setattr(os, "dup", dup)
        image = image.apply([node_record(2, fenced=True)], 2)
        with pytest.raises(StartError, match=f"cannot listen at 127.0.0.1:{port + 1}: Too many open files"):
            await sockets.open(image)
        assert sockets.is_serving
        monkeypatch.undo()
    await sockets.close()


async def test_a_port_that_is_not_kept_is_left_to_its_own_process() -> None:
    parts = Gateway().parts
    parts = replace(parts, config=replace(parts.config, own_position_only=0))
    sockets = Sockets(parts, (replace(LISTENER, port=free_ports(2)),), Faults(), CollectorRegistry())
    await sockets.open(MetadataImage().apply([node_record(1), node_record(2, fenced=True)], 1))
    assert sockets._servers.keys() == {("PLAINTEXT", 0)}
    await sockets.close()


async def test_a_kept_port_refuses_where_nobody_can_be_served_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process before listened at it: the kernel would go on taking connections."""
    port = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as kept:
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port): kept.fileno()}))
        monkeypatch.setattr(limits, "KEPT_UNSERVED_SECONDS_MAX", 0.05)
        gateway = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
        await gateway.open(MetadataImage())
        with socket.create_connection(("127.0.0.1", port)) as early:
            early.setblocking(False)
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(early, 1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await gateway.open(IMAGE)
        with socket.create_connection(("127.0.0.1", port)):
            while not gateway._connections:
                await asyncio.sleep(0)
        await gateway.close()


async def test_a_port_that_nobody_has_listened_at_serves_also_where_metadata_come_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first start: what is shut down before it listens would be so for good."""
    port, ask = free_ports(1), request_frame(API_VERSIONS_KEY, 0, {})
    monkeypatch.setattr(limits, "KEPT_UNSERVED_SECONDS_MAX", 0.0)
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", port))
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port): kept.fileno()}))
        gateway = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
        await gateway.open(MetadataImage())
        await asyncio.sleep(0)  # what is due by then is done in the turn that follows
        await asyncio.sleep(0)
        await gateway.open(IMAGE)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", len(ask)) + ask)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(length)
        writer.close()
        await gateway.close()


async def test_a_gateway_that_stops_leaves_who_comes_to_a_kept_port_to_the_next_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was started a moment ago, and did not know a node then."""
    port = free_ports(1)
    monkeypatch.setattr(limits, "KEPT_UNSERVED_SECONDS_MAX", 0.0)
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", port))
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port): kept.fileno()}))
        gateway = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
        await gateway.open(MetadataImage())
        await gateway.open(IMAGE)
        await gateway.close()
        with socket.create_connection(("127.0.0.1", port)) as late:
            await asyncio.sleep(0)  # what is due by then is done in the turn that follows
            await asyncio.sleep(0)
            late.setblocking(False)
            with pytest.raises(BlockingIOError):
                late.recv(1)


async def test_a_process_without_metadata_leaves_its_port_to_those_who_serve_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket is one: shut down, it would refuse for the guest, too, whose event loop would turn without a pause."""
    port, ask = free_ports(2), request_frame(API_VERSIONS_KEY, 0, {})
    monkeypatch.setattr(limits, "KEPT_UNSERVED_SECONDS_MAX", 0.0)
    with (
        socket.create_server(("127.0.0.1", port)) as own,
        socket.create_server(("127.0.0.1", port + 1)) as other,
    ):
        descriptors = {("127.0.0.1", port): own.fileno(), ("127.0.0.1", port + 1): other.fileno()}
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept(descriptors))
        parts = Gateway().parts
        guest, back = (
            Sockets(
                replace(parts, config=replace(parts.config, own_position_only=position)),
                (replace(LISTENER, port=port),),
                Faults(),
                CollectorRegistry(),
            )
            for position in (0, 1)
        )
        await guest.open(
            MetadataImage().apply([node_record(1), gateway_of(1), node_record(2, fenced=True)], 1)
        )
        await back.open(MetadataImage())
        await asyncio.sleep(0)  # what is due by then is done in the turn that follows
        await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port + 1)
        writer.write(struct.pack(">i", len(ask)) + ask)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(length)
        writer.close()
        await back.close()
        await guest.close()


async def test_a_kept_port_that_another_has_listened_at_first_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_ports(1)
    with socket.socket() as kept, socket.socket() as other:
        for sock in (kept, other):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept({("127.0.0.1", port): kept.fileno()}))
        gateway = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
        await gateway.open(MetadataImage())
        other.listen()
        with pytest.raises(StartError, match=f"cannot listen at 127.0.0.1:{port}: "):
            await gateway.open(IMAGE)
        await gateway.close()
