"""Heartbeats: who sends which, what ends them, and that a silent controller is left for one that answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from barnabas.links.controller_link import ControllerLink
from barnabas.links.errors import DeadlinePassed, Refusal, Refused
from barnabas.links.network import Network
from barnabas.messages.controller_pb2 import (
    MetadataDelta,
    ServiceHeartbeatRequest,
    ServiceHeartbeatResponse,
    WatchRequest,
)
from barnabas.messages.metadata_pb2 import CoordinatorRecord, GatewayRecord, NodeRecord
from barnabas.metadata import heartbeats
from barnabas.metadata import subscription as subscriptions
from barnabas.metadata.heartbeats import heartbeat_of, send_heartbeats
from barnabas.metadata.subscription import MetadataSubscription

NODE = WatchRequest(node=NodeRecord(node_id=4, incarnation_id="life"))


class FakeController:
    """A link to a controller that streams one snapshot and then nothing, and answers heartbeats as a test says."""

    def __init__(self) -> None:
        self.heartbeats: list[ServiceHeartbeatRequest] = []
        self.watches = 0
        self.is_silent = False
        self.refusal: Refusal | None = None
        self.hangs = False
        self.may_answer = asyncio.Event()

    async def Watch(self, request: WatchRequest) -> AsyncGenerator[MetadataDelta]:
        self.watches += 1
        yield MetadataDelta(revision=self.watches, snapshot=True)
        await asyncio.Event().wait()

    async def ServiceHeartbeat(
        self, request: ServiceHeartbeatRequest, *, timeout: float | None = None
    ) -> ServiceHeartbeatResponse:
        assert timeout, "a controller that is frozen would never answer"
        self.heartbeats.append(request)
        if self.is_silent:
            raise DeadlinePassed("its time is over")
        if self.hangs:
            await self.may_answer.wait()
        if self.refusal is not None:
            raise Refused(self.refusal, "begin with Watch")
        return ServiceHeartbeatResponse()

    async def close(self) -> None:
        """The fake goes on."""


class FakeNetwork:
    """Leads to two controllers; `opened` has an address for each link that was asked for."""

    def __init__(self) -> None:
        self.controllers = {"a": FakeController(), "b": FakeController()}
        self.opened: list[str] = []

    def connect_controller(self, address: str) -> ControllerLink:
        self.opened.append(address)
        return cast(ControllerLink, self.controllers[address])


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    """Heartbeats go out one after another, without a pause."""
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", 0.0)
    return FakeNetwork()


def following(network: FakeNetwork, *addresses: str, request: WatchRequest) -> MetadataSubscription:
    return MetadataSubscription(cast(Network, network), addresses, lambda: request)


async def follow(subscription: MetadataSubscription, until: Any) -> None:
    running = asyncio.create_task(subscription.run())
    async with asyncio.timeout(30):
        while not until():
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait({running})


def test_everyone_who_registers_sends_its_own() -> None:
    assert heartbeat_of(NODE) == ServiceHeartbeatRequest(node_id=4, incarnation_id="life")
    # A controller of an earlier version would not know a gateway's incarnation.
    gateway = WatchRequest(gateway=GatewayRecord(gateway_id="g", incarnation_id="life"))
    assert heartbeat_of(gateway) == ServiceHeartbeatRequest(gateway_id="g")
    coordinator = WatchRequest(coordinator=CoordinatorRecord(coordinator_id="c", incarnation_id="life"))
    assert heartbeat_of(coordinator) == ServiceHeartbeatRequest(coordinator_id="c", incarnation_id="life")
    assert heartbeat_of(WatchRequest()) is None


async def test_a_controller_that_does_not_answer_heartbeats_is_left(network: FakeNetwork) -> None:
    first, second = network.controllers.values()
    first.is_silent = True
    subscription = following(network, "a", "b", request=NODE)
    await follow(subscription, lambda: len(second.heartbeats) > 3)
    assert (first.watches, second.watches) == (1, 1)
    assert {str(sent) for sent in second.heartbeats if not sent.leaving} == {str(heartbeat_of(NODE))}
    assert network.opened == ["a", "b", "a"], "a link that was lost is opened anew"


async def test_a_service_that_was_given_up_registers_again(network: FakeNetwork) -> None:
    controller = network.controllers["a"]
    controller.refusal = Refusal.NOT_REGISTERED
    await follow(following(network, "a", request=NODE), lambda: controller.watches >= 3)
    assert len(controller.heartbeats) >= 2


async def test_a_service_that_is_stopped_says_so(network: FakeNetwork) -> None:
    controller = network.controllers["a"]
    subscription = following(network, "a", request=NODE)
    await follow(subscription, lambda: subscription.is_current)
    assert [heartbeat.leaving for heartbeat in controller.heartbeats][-1:] == [True]
    assert not any(heartbeat.leaving for heartbeat in controller.heartbeats[:-1])


async def test_a_service_that_is_stopped_while_its_controller_goes_ends(network: FakeNetwork) -> None:
    """It is asked once, and that falls into the moment in which the lost stream waits for its heartbeats to end."""
    is_gone, is_ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Going(FakeController):
        async def Watch(self, request: WatchRequest) -> AsyncGenerator[MetadataDelta]:
            yield MetadataDelta(revision=1, snapshot=True)
            await is_gone.wait()
            raise Refused(Refusal.NOT_ACTIVE, "this controller stepped down")

        async def ServiceHeartbeat(
            self, request: ServiceHeartbeatRequest, *, timeout: float | None = None
        ) -> ServiceHeartbeatResponse:
            if not request.leaving:
                is_gone.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    is_ending.set()
                    await may_end.wait()
            return ServiceHeartbeatResponse()

    network.controllers["a"] = Going()
    running = asyncio.create_task(following(network, "a", request=NODE).run())
    await is_ending.wait()
    running.cancel()
    may_end.set()
    done, _ = await asyncio.wait({running}, timeout=10)
    assert done, "it follows the next controller"
    assert running.cancelled()


async def test_a_service_is_in_touch_for_so_long_after_a_heartbeat_that_was_answered(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "IN_TOUCH_SECONDS_MAX", 0.2)
    controller = network.controllers["a"]
    subscription = following(network, "a", request=NODE)
    assert not subscription.is_in_touch
    running = asyncio.create_task(subscription.run())
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(30):
        while len(controller.heartbeats) < 5:
            await asyncio.sleep(0)
        assert subscription.is_in_touch
        controller.hangs = True
        while subscription.is_in_touch:
            await asyncio.sleep(0.01)
        assert subscription.is_current, "its stream says nothing of it"
        assert loop.time() - subscription._heard_at > 0.2
        controller.hangs = False
        controller.may_answer.set()
        while not subscription.is_in_touch:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})


async def test_a_service_knows_how_long_no_controller_has_heard_of_it(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "RETRY_SECONDS_MAX", 0.01)
    controller = network.controllers["a"]
    subscription = following(network, "a", request=NODE)
    assert subscription.silent_seconds == 0, "it has not begun"
    running = asyncio.create_task(subscription.run())
    async with asyncio.timeout(30):
        while len(controller.heartbeats) < 5:
            await asyncio.sleep(0)
        assert subscription.silent_seconds < 1
        controller.hangs = True
        while subscription.silent_seconds < 0.1:
            await asyncio.sleep(0.01)
        assert subscription.is_current
        controller.hangs, controller.is_silent = False, True
        controller.may_answer.set()
        monkeypatch.setattr(controller, "Watch", silent_watch)
        while subscription.is_current:
            await asyncio.sleep(0.01)
        while subscription.silent_seconds < 0.3:  # though it tries again and again
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})


async def silent_watch(_: WatchRequest) -> AsyncGenerator[MetadataDelta]:
    raise DeadlinePassed("nobody answers")
    yield MetadataDelta()


async def test_an_observer_sends_none(network: FakeNetwork) -> None:
    controller = network.controllers["a"]
    controller.is_silent = True
    subscription = following(network, "a", request=WatchRequest())
    await follow(subscription, lambda: subscription.image.revision)
    assert (controller.watches, controller.heartbeats) == (1, [])


async def test_a_controller_of_an_earlier_version_is_judged_by_its_stream() -> None:
    calls = 0
    answered: list[float] = []

    class Earlier:
        async def ServiceHeartbeat(self, _: Any, timeout: float) -> Any:
            nonlocal calls
            calls += 1
            raise Refused(Refusal.UNKNOWN_CALL, "no such method")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeats, "HEARTBEAT_SECONDS", 0.0)
        sending = asyncio.ensure_future(
            send_heartbeats(Earlier(), ServiceHeartbeatRequest(node_id=1), answered.append)  # type: ignore[arg-type]
        )
        for _ in range(50):
            await asyncio.sleep(0)
    assert (calls, sending.done()) == (1, False)
    assert answered == [math.inf], "it is never out of touch, as far as one can tell"
    sending.cancel()
