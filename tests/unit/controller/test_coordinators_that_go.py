"""What a coordinator owned is others' as soon as it says that it goes, or its process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from test_controller_service import (
    StoreFactory,
    config_for,
    coordinator_request,
    create,
    node_request,
    over_grpc,
    until,
    watching,
)

from barnabas.controller import lost_services
from barnabas.controller.service import RunningController, running_controller
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.service import serve
from barnabas.kernel.service import ServiceContext
from barnabas.links.errors import Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.server import RpcServer


@pytest.fixture
async def running(open_store: StoreFactory, tmp_path: Path) -> AsyncIterator[RunningController]:
    """A controller that waits long for coordinators to come back."""
    config = config_for(tmp_path, coordinator_session_timeout_ms=60_000)
    async with running_controller(config, await open_store(), over_grpc()) as controller:
        yield controller


def owners(image: MetadataImage) -> set[str]:
    return {each.coordinator_id for each in image.topics[GROUP_METADATA_TOPIC].partitions}


def are(*names: str) -> Callable[[MetadataImage], bool]:
    return lambda image: GROUP_METADATA_TOPIC in image.topics and owners(image) == set(names)


async def test_others_own_what_a_coordinator_owned_before_it_has_gone(running: RunningController) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
    ):
        await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        await until(node, are("c1", "c2"))
        await leaving.say_goodbye()
        await until(leaving, are("c1"))
        assert leaving.is_current


async def test_who_has_no_others_keeps_what_it_owns(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        async with watching(running.address, coordinator_request("c1")):
            await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
            await until(node, are("c1"))
        await create(node, "later")
        image = await until(node, lambda image: "later" in image.topics)
        assert owners(image) == set(image.coordinators) == {"c1"}
        assert {each.coordinator_epoch for each in image.topics[GROUP_METADATA_TOPIC].partitions} == {0}


@pytest.mark.parametrize("has_ended", [True, False])
async def test_one_that_says_nothing_is_asked_whether_it_has_ended(
    running: RunningController, monkeypatch: pytest.MonkeyPatch, has_ended: bool
) -> None:
    asked = []

    async def is_refused(_: object, address: str) -> bool:
        asked.append(address)
        return has_ended and address == "unix:/c2"

    async def say_nothing(_: MetadataSubscription) -> None: ...

    monkeypatch.setattr(lost_services, "_has_ended", is_refused)
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(MetadataSubscription, "say_goodbye", say_nothing)
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        AsyncExitStack() as of_two,
    ):
        await of_two.enter_async_context(watching(running.address, coordinator_request("c2")))
        await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        await until(node, are("c1", "c2"))
        await of_two.aclose()
        if has_ended:
            await until(node, are("c1"))
            return
        async with asyncio.timeout(10):
            while len(asked) < 5:
                await asyncio.sleep(0.001)
        assert owners(node.image) == {"c1", "c2"}


async def test_one_that_has_ended_while_no_controller_led_is_not_waited_for(
    open_store: StoreFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_refused(_: object, address: str) -> bool:
        return address == "unix:/c2"

    async def say_nothing(_: MetadataSubscription) -> None: ...

    monkeypatch.setattr(lost_services, "_has_ended", is_refused)
    monkeypatch.setattr(MetadataSubscription, "say_goodbye", say_nothing)
    config = config_for(tmp_path, coordinator_session_timeout_ms=60_000, broker_session_timeout_ms=60_000)
    async with AsyncExitStack() as services:
        async with running_controller(config, await open_store(), over_grpc()) as first:
            node = await services.enter_async_context(watching(first.address, node_request()))
            await services.enter_async_context(watching(first.address, coordinator_request("c1")))
            async with watching(first.address, coordinator_request("c2")):
                await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
                await until(node, are("c1", "c2"))
                # Nobody looks for it in this term: the controller dies in the same moment.
                monkeypatch.setattr(first.controller.active, "_look_for", lambda _: None)
        async with running_controller(config, await open_store(), over_grpc()):
            await until(node, are("c1"))


async def test_a_goodbye_of_a_former_process_takes_nothing_from_the_next(
    running: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_refused(*_: object) -> bool:
        return False

    async def say_nothing(_: MetadataSubscription) -> None: ...

    monkeypatch.setattr(lost_services, "_has_ended", is_refused)
    monkeypatch.setattr(MetadataSubscription, "say_goodbye", say_nothing)
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")) as other,
    ):
        async with watching(running.address, coordinator_request("c2", "b")):
            await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
            await until(node, are("c1", "c2"))
        late = pb.ServiceHeartbeatRequest(coordinator_id="c2", incarnation_id="a", leaving=True)
        with pytest.raises(Refused):
            await other.controller.ServiceHeartbeat(late)
        await create(node, "later")
        assert owners(await until(node, lambda image: "later" in image.topics)) == {"c1", "c2"}


async def test_who_has_said_goodbye_is_not_registered_again(running: RunningController) -> None:
    """Its stream breaks, or another controller takes over, while it stops."""
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
    ):
        await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        await until(node, are("c1", "c2"))
        await leaving.say_goodbye()
        await until(leaving, are("c1"))
        await leaving._reopen()
        await create(node, "later")
        image = await until(leaving, lambda image: "later" in image.topics)
        assert owners(image) == set(image.coordinators) == {"c1"}


async def test_a_coordinator_answers_until_others_own_what_it_owned(
    running: RunningController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, context = RpcServer.stop, ServiceContext("coordinator", over_grpc())
    address = f"unix:{tmp_path}/coordinator.sock"
    async with (
        watching(running.address, pb.WatchRequest()) as observer,
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
    ):

        async def stop_seen(server: RpcServer, grace_seconds: float | None) -> None:
            assert running.controller.active is not None
            assert owners(running.controller.active.image) == {"c1"}
            await stop(server, grace_seconds)

        config = CoordinatorConfig(
            coordinator_id="c2", listen_address=address, controllers=(running.address,)
        )
        serving = asyncio.create_task(serve(config, context))
        await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        await until(observer, are("c1", "c2"))
        async with asyncio.timeout(10):
            while context.health.unmet():
                await asyncio.sleep(0.001)
        monkeypatch.setattr(RpcServer, "stop", stop_seen)
        context.stopping.set()
        await serving
