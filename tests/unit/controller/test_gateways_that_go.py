"""Clients are told of a gateway no more as soon as it says that it goes, or a moment after its process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_controller_service import StoreFactory, config_for, over_grpc, until, watching

from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.sessions import Kind, Member
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.subscription import MetadataSubscription


@pytest.fixture
async def running(open_store: StoreFactory, tmp_path: Path) -> AsyncIterator[RunningController]:
    """A controller that waits for whoever says nothing."""
    config = config_for(tmp_path, gateway_session_timeout_ms=60_000)
    async with running_controller(config, await open_store(), over_grpc()) as controller:
        yield controller


def gateway_request(name: str, incarnation: str = "a", node_id: int | None = None) -> pb.WatchRequest:
    return pb.WatchRequest(
        gateway=md.GatewayRecord(gateway_id=name, incarnation_id=incarnation, node_id=node_id)
    )


async def say_goodbye(gateway: MetadataSubscription, name: str, incarnation: str) -> None:
    await gateway.controller.ServiceHeartbeat(
        pb.ServiceHeartbeatRequest(gateway_id=name, incarnation_id=incarnation, leaving=True), timeout=10
    )


async def test_one_that_says_goodbye_is_shown_no_more_and_hears_of_that(running: RunningController) -> None:
    async with watching(running.address, gateway_request("stays")):
        async with watching(running.address, gateway_request("goes")) as gateway:
            await until(gateway, lambda image: len(image.gateways) == 2)
            async with asyncio.timeout(10):
                await gateway.leave(lambda image: "goes" not in image.gateways, 10)
            assert gateway.image.gateways.keys() == {"stays"}
            assert gateway.is_current, "it follows the metadata while it answers what is under way"
        async with watching(running.address, gateway_request("goes", "b")) as gateway:
            await until(gateway, lambda image: len(image.gateways) == 2)


async def test_who_leaves_while_no_controller_answers_does_not_wait(running: RunningController) -> None:
    async with watching(running.address, gateway_request("stays")) as gateway:
        gateway._connected = False
        async with asyncio.timeout(5):
            await gateway.leave(lambda _: False, 60)


@pytest.mark.parametrize("is_done", [True, False])
async def test_who_leaves_does_not_register_again(running: RunningController, is_done: bool) -> None:
    """Its stream may break meanwhile, or be broken; and it may be alone."""
    async with (
        watching(running.address, gateway_request("stays")) as other,
        watching(running.address, gateway_request("goes")) as gateway,
    ):
        await until(other, lambda image: len(image.gateways) == 2)
        gateway._connected = is_done
        await gateway.leave(lambda _: is_done, 60)
        active = running.controller.active
        assert active is not None
        active._sessions._timeouts_ms[Kind.GATEWAY] = 10
        active._sessions.end_stream(Member(Kind.GATEWAY, "goes"), "for a test")
        await until(other, lambda image: image.gateways.keys() == {"stays"})
        await until(gateway, lambda image: image.gateways.keys() == {"stays"})


async def test_a_gateway_in_a_nodes_process_keeps_its_address(running: RunningController) -> None:
    async with (
        watching(running.address, gateway_request("of a node", node_id=1)) as gateway,
        watching(running.address, gateway_request("goes")) as other,
    ):
        await say_goodbye(gateway, "of a node", "a")
        await say_goodbye(other, "goes", "a")
        image = await until(gateway, lambda image: "goes" not in image.gateways)
        assert "of a node" in image.gateways


async def test_the_goodbye_of_a_former_process_is_none_of_the_next(running: RunningController) -> None:
    async with (
        watching(running.address, gateway_request("restarted", "b")) as gateway,
        watching(running.address, gateway_request("goes")) as other,
    ):
        with pytest.raises(Exception, match="register"):
            await say_goodbye(gateway, "restarted", "a")
        await say_goodbye(other, "goes", "a")
        image = await until(gateway, lambda image: "goes" not in image.gateways)
        assert image.gateways.keys() == {"restarted"}
