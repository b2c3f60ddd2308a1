"""A whole gateway from start to stop, against a controller that only streams metadata."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from gateway_harness import node_record

from barnabas.gateway import limits, service
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.service import serve
from barnabas.kernel.service import ServiceContext, system_environment
from barnabas.links.controller_link import ControllerService
from barnabas.messages.controller_pb2 import (
    MetadataDelta,
    ServiceHeartbeatRequest,
    ServiceHeartbeatResponse,
    WatchRequest,
)
from barnabas.messages.metadata_pb2 import ClusterRecord, GatewayRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, gateway_key
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.network import GrpcNetwork

CLUSTER = MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id="c" * 22))


class FakeController:
    """Streams a snapshot, and a change when it is told to."""

    def __init__(
        self, snapshot: Sequence[MetadataRecord] = (), change: Sequence[MetadataRecord] = (CLUSTER,)
    ) -> None:
        self.snapshot = [CLUSTER, *snapshot]
        self.change = change
        self.may_change = asyncio.Event()
        self.is_watched = False
        self.goodbyes = 0
        self.shows = False
        """Whether it knows who watches from the start."""

    async def ServiceHeartbeat(self, request: ServiceHeartbeatRequest) -> ServiceHeartbeatResponse:
        """The second goodbye is heard of."""
        self.goodbyes += request.leaving
        assert not request.leaving or request.incarnation_id
        if self.goodbyes == 2:
            self.may_change.set()
        return ServiceHeartbeatResponse()

    async def Watch(self, request: WatchRequest) -> AsyncGenerator[MetadataDelta]:
        self.is_watched = True
        own = [MetadataRecord(key=gateway_key("gateway-1"), gateway=request.gateway)] if self.shows else []
        yield MetadataDelta(revision=1, snapshot=True, records=[*self.snapshot, *own])
        await self.may_change.wait()
        yield MetadataDelta(revision=2, records=self.change)
        await asyncio.Event().wait()


async def serve_for_a_moment(controller: FakeController, path: Path) -> Sequence[str]:
    """A gateway, from its start to its stop as soon as it has metadata; returns what it lacks then to be ready."""
    server = GrpcNetwork().listen(f"unix:{path}/c")
    await server.serve_controller(cast(ControllerService, controller))  # it answers Watch alone
    config = GatewayConfig(controllers=(f"unix:{path}/c",), listeners=("PLAINTEXT://127.0.0.1:0",))
    context = ServiceContext("gateway", system_environment(network=GrpcNetwork()))
    running: asyncio.Task[None] = asyncio.ensure_future(serve(config, context))
    try:
        async with asyncio.timeout(20):
            while not controller.is_watched or "metadata received" in context.health.unmet():
                assert not running.done()
                await asyncio.sleep(0)
            unmet = context.health.unmet()
            context.stopping.set()
            await running
            return unmet
    finally:
        await server.stop(0)


async def until_it_has_changed(controller: FakeController, parts: GatewayParts) -> bool:
    controller.may_change.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await parts.metadata.wait_until(lambda image: image.revision == 2)
            return True
    return False


async def test_what_is_under_way_at_a_stop_hears_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request for a topic that is being created, say, is answered once the metadata has it."""
    controller, close, heard = FakeController(), Sockets.close, asyncio.Event()

    async def close_once_it_is_heard(sockets: Sockets) -> None:
        if await until_it_has_changed(controller, sockets._parts):
            heard.set()
        await close(sockets)

    monkeypatch.setattr(Sockets, "close", close_once_it_is_heard)
    await serve_for_a_moment(controller, tmp_path)
    assert heard.is_set()


async def test_what_clients_are_told_of_brokers_follows_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed keeps its address, and is shown for a moment."""
    gateway = GatewayRecord(gateway_id="broker-1", node_id=1)
    controller = FakeController(
        [node_record(1), MetadataRecord(key=gateway_key("broker-1"), gateway=gateway)],
        [node_record(1, fenced=True), MetadataRecord(key=gateway_key("broker-1"))],
    )
    close, known = Sockets.close, []

    async def close_once_it_is_known(sockets: Sockets) -> None:
        parts = sockets._parts
        await until_it_has_changed(controller, parts)
        known.append((parts.own_gateways.of(1), parts.lately_fenced.still_shown()))
        await close(sockets)

    monkeypatch.setattr(Sockets, "close", close_once_it_is_known)
    await serve_for_a_moment(controller, tmp_path)
    assert known[0] == (gateway, [1])


@pytest.mark.parametrize("is_shown", [True, False])
async def test_it_is_ready_when_it_is_shown_and_closes_when_clients_were_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    controller = FakeController(gateway_records("gateway-2"), [MetadataRecord(key=gateway_key("gateway-1"))])
    controller.shows = is_shown
    close, steps = Sockets.close, list[tuple[str, list[str]]]()

    async def send_away(sockets: Sockets) -> None:
        steps.append(("send away", list(sockets._parts.metadata.image.gateways)))

    async def close_and_note(sockets: Sockets) -> None:
        steps.append(("close", []))
        await close(sockets)

    monkeypatch.setattr(Sockets, "send_away", send_away)
    monkeypatch.setattr(Sockets, "close", close_and_note)
    unmet = await serve_for_a_moment(controller, tmp_path)
    assert ("shown to clients" in unmet) == (not is_shown)
    assert steps[:2] == [("send away", ["gateway-2"]), ("close", [])]


def gateway_records(*names: str) -> list[MetadataRecord]:
    return [MetadataRecord(key=gateway_key(name), gateway=GatewayRecord(gateway_id=name)) for name in names]


@pytest.mark.parametrize(
    ("names", "goodbyes"), [(("gateway-1", "gateway-2"), 2), (("gateway-1",), 0), (("gateway-2",), 0)]
)
async def test_connections_are_closed_when_clients_are_told_of_other_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], goodbyes: int
) -> None:
    """The goodbye is said until it is heard, where there are others."""
    controller = FakeController(gateway_records(*names), [MetadataRecord(key=gateway_key("gateway-1"))])
    close, shown = Sockets.close, []

    async def close_and_note(sockets: Sockets) -> None:
        shown.append((list(sockets._parts.metadata.image.gateways), controller.goodbyes))
        await close(sockets)

    monkeypatch.setattr(Sockets, "close", close_and_note)
    monkeypatch.setattr(limits, "LEAVING_SECONDS_MAX", 60.0)
    await serve_for_a_moment(controller, tmp_path)
    assert shown[0] == (["gateway-2"] if goodbyes else list(names), goodbyes)


async def test_a_gateway_that_nobody_hears_of_waits_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = FakeController(gateway_records("gateway-1", "gateway-2"))
    controller.goodbyes = 2  # the next one is not heard of
    monkeypatch.setattr(limits, "LEAVING_SECONDS_MAX", 0.25)
    await serve_for_a_moment(controller, tmp_path)
    assert controller.goodbyes > 3


@pytest.mark.parametrize("incarnation_id", ["its own", "another's"])
async def test_it_is_ready_once_others_can_send_their_clients_to_it(incarnation_id: str) -> None:
    """And stays so: while no controller answers, or it is forgotten for a moment, it serves on."""
    registration = GatewayRecord(gateway_id="gateway-1", incarnation_id="its own")
    callbacks: list[Callable[[MetadataImage, MetadataImage], None]] = []
    metadata = SimpleNamespace(on_change=callbacks.append)
    is_shown = service._has_been_shown(cast(MetadataSubscription, metadata), registration)
    known = GatewayRecord(gateway_id="gateway-1", incarnation_id=incarnation_id)
    image = MetadataImage().apply([MetadataRecord(key=gateway_key("gateway-1"), gateway=known)], 1)
    seen = []
    for old, new in itertools.pairwise([MetadataImage(), MetadataImage(), image, MetadataImage()]):
        callbacks[0](old, new)
        seen.append(is_shown())
    assert seen == [False, *[incarnation_id == "its own"] * 2]
