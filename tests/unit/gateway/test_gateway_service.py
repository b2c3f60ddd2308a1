"""A whole gateway from start to stop, against a controller that only streams metadata."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.gateway import limits, service
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.service import serve
from barnabas.kernel.service import ServiceContext, system_environment
from barnabas.links.controller_link import ControllerService
from barnabas.messages.controller_pb2 import MetadataDelta, WatchRequest
from barnabas.messages.metadata_pb2 import ClusterRecord, MetadataRecord
from barnabas.rpc.network import GrpcNetwork
from jumping_time import jumping_time


class FakeController:
    """Streams a snapshot, and a change when it is told to."""

    def __init__(self) -> None:
        self.may_change = asyncio.Event()

    async def Watch(self, _: WatchRequest) -> AsyncGenerator[MetadataDelta]:
        cluster = MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id="c" * 22))
        yield MetadataDelta(revision=1, snapshot=True, records=[cluster])
        await self.may_change.wait()
        yield MetadataDelta(revision=2, records=[cluster])
        await asyncio.Event().wait()


async def test_what_is_under_way_at_a_stop_hears_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for a topic that is being created, say, is answered once the metadata has it."""
    controller, server = FakeController(), GrpcNetwork().listen(f"unix:{tmp_path}/c")
    await server.serve_controller(cast(ControllerService, controller))  # it answers Watch alone
    close, heard = Sockets.close, asyncio.Event()

    async def close_once_it_is_heard(sockets: Sockets) -> None:
        controller.may_change.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await sockets._parts.metadata.wait_until(lambda image: image.revision == 2)
                heard.set()
        await close(sockets)

    monkeypatch.setattr(Sockets, "close", close_once_it_is_heard)
    config = GatewayConfig(controllers=(f"unix:{tmp_path}/c",), listeners=("PLAINTEXT://127.0.0.1:0",))
    context = ServiceContext("gateway", system_environment(network=GrpcNetwork()))
    running: asyncio.Task[None] = asyncio.ensure_future(serve(config, context))
    try:
        async with asyncio.timeout(20):
            while "metadata received" in context.health.unmet():
                assert not running.done()
                await asyncio.sleep(0)
            context.stopping.set()
            await running
    finally:
        await server.stop(0)
    assert heard.is_set()


@pytest.mark.parametrize(
    ("gateways", "has_connections", "is_told"), [(2, True, True), (1, True, False), (2, False, False)]
)
async def test_a_broker_that_stops_tells_producers_who_leads_if_they_can_go_elsewhere(
    gateways: int, has_connections: bool, is_told: bool
) -> None:
    parts = SimpleNamespace(
        metadata=SimpleNamespace(image=SimpleNamespace(gateways=range(gateways))),
        leads_no_more=asyncio.Event(),
    )
    sockets = SimpleNamespace(has_connections=has_connections)
    with jumping_time():
        began = asyncio.get_running_loop().time()
        await service._send_producers_away(cast(GatewayParts, parts), cast(Sockets, sockets))
        waited = asyncio.get_running_loop().time() - began
    assert parts.leads_no_more.is_set() == is_told
    assert waited == pytest.approx(limits.SENDING_AWAY_SECONDS if is_told else 0.0)
