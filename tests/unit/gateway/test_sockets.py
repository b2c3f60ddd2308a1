"""When the gateway's ports are taken, and when clients are let in."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gateway_harness import LISTENER, Gateway, node_record
from prometheus_client import CollectorRegistry

from barnabas.gateway.faults import Faults
from barnabas.gateway.service import Sockets
from barnabas.kernel.service import StartError
from barnabas.metadata.image import MetadataImage
from barnabas.testing.ports import free_ports

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
