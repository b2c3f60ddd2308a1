"""When the gateway's ports are taken, and when clients are let in."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import LISTENER, Gateway, node_record, request_frame
from prometheus_client import CollectorRegistry

from barnabas.gateway import limits
from barnabas.gateway.clients.fetch_sessions import WantedPartition
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.faults.injection import Faults
from barnabas.kernel.movable_clock import MovableClock
from barnabas.kernel.service import StartError
from barnabas.metadata.image import MetadataImage
from barnabas.testing.ports import free_ports
from barnabas.wire.fetch import API_KEY as FETCH

IMAGE = MetadataImage().apply([node_record(1)], 1)


async def test_nobody_is_let_in_before_there_are_metadata() -> None:
    """A client that is told of no brokers at all (librdkafka) asks again only when that connection is lost."""
    port = free_ports(1)
    listener = replace(LISTENER, port=port)
    sockets = Sockets(Gateway().parts, (listener,), Faults(), CollectorRegistry())
    await sockets.open(MetadataImage())
    try:
        assert not sockets.is_serving
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await sockets.open(IMAGE)
        assert sockets.is_serving
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
    finally:
        await sockets.close()


async def test_a_port_that_is_taken_is_found_out_before_there_are_metadata() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    with pytest.raises(StartError, match=f"cannot listen at 127.0.0.1:{port}"):
        await sockets.open(MetadataImage())
    server.close()


async def test_a_client_that_reads_nothing_cannot_keep_a_connection_that_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.CLOSING_SECONDS_MAX", 0.01)
    port = free_ports(1)
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    try:
        deaf = socket.create_connection(("127.0.0.1", port))
        while not sockets._connections:
            await asyncio.sleep(0)
        (connection,) = sockets._connections
        connection._transport.write(bytes(64 << 20))
        connection.data_received(b"\0\0\0\x10half")
        assert (connection.is_idle, sockets._budget.used_bytes) == (True, 8)
        connection.close()
        while sockets._connections:
            await asyncio.sleep(0.001)
        assert sockets._budget.used_bytes == 0
        deaf.close()
    finally:
        await sockets.close()


async def test_a_lost_connection_goes_at_once_with_its_bytes() -> None:
    """Not with the next full garbage collection, which may be minutes away."""
    port = free_ports(1)
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    try:
        client = socket.create_connection(("127.0.0.1", port))
        while not sockets._connections:
            await asyncio.sleep(0)
        (connection,) = sockets._connections
        connection.data_received(b"\0\1\0\0half of a frame")
        assert sockets._budget.used_bytes == 19
        reader, left = connection._reader, weakref.ref(connection)
        del connection
        gc.collect()
        gc.disable()
        client.close()
        while sockets._connections:
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0)
        assert left() is None
        assert (reader.buffered_bytes, reader._chunks, sockets._budget.used_bytes) == (0, [], 0)
    finally:
        gc.enable()
        await sockets.close()


async def test_a_lost_connection_takes_its_fetch_sessions_with_it() -> None:
    port, parts = free_ports(1), Gateway().parts
    sockets = Sockets(parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    wanted = [WantedPartition("orders", 0, 0, 1_000, -1, -1)]
    frame = request_frame(FETCH, 11, {"session_epoch": 0, "min_bytes": 0, "max_bytes": 1_000})
    try:
        kept = parts.fetch_sessions.open(wanted, uses_topic_ids=False, now_ms=0, connection_id=99)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", len(frame)) + frame)
        await reader.readexactly(4)
        assert len(parts.fetch_sessions) == 2
        writer.close()
        while sockets._connections:
            await asyncio.sleep(0.001)
        assert list(parts.fetch_sessions._sessions.values()) == [kept]
    finally:
        await sockets.close()


@pytest.mark.parametrize(
    ("silent", "jump", "left"),
    [
        (0.0, 3600.0, 5.0),  # idle by the jump alone: a moment to show that it is used
        (0.0, 100.0, 500.0),
        (598.0, 3600.0, 2.0),  # no more than it had
    ],
)
async def test_a_jump_of_the_clock_closes_what_stays_silent(silent: float, jump: float, left: float) -> None:
    parts, port = Gateway().parts, free_ports(1)
    clock = MovableClock()
    sockets = Sockets(
        replace(parts, clock=clock), (replace(LISTENER, port=port),), Faults(), CollectorRegistry()
    )
    await sockets.open(IMAGE)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not sockets._connections:
            await asyncio.sleep(0)
        (connection,) = sockets._connections
        now = connection.last_activity = asyncio.get_running_loop().time()
        connection.last_activity -= silent
        await clock.advance_to(round(jump * 1000))
        idle_since = now - connection.last_activity
        assert parts.config.connections_max_idle_ms / 1000 - idle_since == pytest.approx(left, abs=1)
        writer.close()
        await writer.wait_closed()
    finally:
        await sockets.close()


async def test_a_gateway_that_stops_answers_what_is_under_way_and_waits_until_it_is_read() -> None:
    port = free_ports(1)
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(*_: Any) -> bytes:
        return await answer

    sockets._dispatcher.serve = serve  # type: ignore[method-assign]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\0\0\0\4\0\0\0\7")
    while not (sockets._connections and next(iter(sockets._connections))._slots):
        await asyncio.sleep(0)
    closing = asyncio.create_task(sockets.close())
    await asyncio.sleep(0)
    writer.write(b"\0\0\0\4\0\0\0\x08")  # a request that is not taken any more
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
    assert not closing.done()
    answer.set_result(b"answer")
    assert await reader.read() == b"answer", "and then the end, no reset"
    assert not closing.done(), "the client has not closed yet"
    writer.close()
    await closing
    assert not sockets._connections


@pytest.mark.parametrize("unread", [0, 64 << 20])
async def test_a_client_that_reads_nothing_or_does_not_close_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch, unread: int
) -> None:
    """Not for CLOSING_SECONDS_MAX either, which is longer than all that a stop has."""
    monkeypatch.setattr(limits, "STOP_ANSWERS_SECONDS_MAX", 0.01)
    monkeypatch.setattr(limits, "CLOSING_SECONDS_MAX", 3600.0)
    port = free_ports(1)
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    with socket.create_connection(("127.0.0.1", port)):
        while not sockets._connections:
            await asyncio.sleep(0)
        (connection,) = sockets._connections
        connection._transport.write(bytes(unread))
        await sockets.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not sockets._connections


async def test_a_gateway_that_stops_cuts_off_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_ANSWERS_SECONDS_MAX", 0.01)
    port = free_ports(1)
    sockets = Sockets(Gateway().parts, (replace(LISTENER, port=port),), Faults(), CollectorRegistry())
    await sockets.open(IMAGE)
    cancelled = asyncio.Event()

    async def serve(*_: Any) -> bytes:
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    sockets._dispatcher.serve = serve  # type: ignore[method-assign]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\0\0\0\4\0\0\0\7")
    while not (sockets._connections and next(iter(sockets._connections))._slots):
        await asyncio.sleep(0)
    await sockets.close()
    await cancelled.wait()
    assert await reader.read() == b""
    writer.close()
