"""What a coordinator owned is others' as soon as it says that it goes, or its process has ended."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
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

from barnabas.controller import active, lost_services
from barnabas.controller.active import ActiveController
from barnabas.controller.config import ControllerConfig
from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.sessions import Kind, Member, Sessions
from barnabas.controller.writer import TooManyRequests
from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.service import serve
from barnabas.kernel.service import ServiceContext
from barnabas.links.errors import Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.server import RpcServer


@pytest.fixture
def patient(tmp_path: Path) -> ControllerConfig:
    """Who is away is waited for."""
    return config_for(tmp_path, coordinator_session_timeout_ms=60_000, broker_session_timeout_ms=60_000)


@pytest.fixture
async def running(open_store: StoreFactory, patient: ControllerConfig) -> AsyncIterator[RunningController]:
    async with running_controller(patient, await open_store(), over_grpc()) as controller:
        yield controller


class Machine:
    """Says of addresses whether they refuse, and counts who asks."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: Counter[str] = Counter()

    async def has_ended(self, _: object, address: str) -> bool:
        self.asked[address] += 1
        return address in self.refused

    async def asks(self, address: str, times: int) -> None:
        """Wait until the address was asked so often from here on."""
        before = self.asked[address]
        async with asyncio.timeout(10):
            while self.asked[address] < before + times:
                await asyncio.sleep(0.001)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Nobody who ends says goodbye: the controller asks at their addresses."""
    machine = Machine()

    async def say_nothing(_: MetadataSubscription) -> None: ...

    monkeypatch.setattr(lost_services, "_has_ended", machine.has_ended)
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(active.limits, "FIRST_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(MetadataSubscription, "say_goodbye", say_nothing)
    return machine


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of those that were not heard of for longer than one may be who is present."""
    names, is_present = set[str](), Sessions.is_present

    def is_heard(sessions: Sessions, member: Member, incarnation_id: str) -> bool:
        return member.name not in names and is_present(sessions, member, incarnation_id)

    monkeypatch.setattr(Sessions, "is_present", is_heard)
    return names


def owners(image: MetadataImage) -> set[str]:
    return {each.coordinator_id for each in image.topics[GROUP_METADATA_TOPIC].partitions}


def owned(image: MetadataImage, name: str) -> list[int]:
    partitions = image.topics[GROUP_METADATA_TOPIC].partitions
    return [each.partition for each in partitions if each.coordinator_id == name]


def are(*names: str) -> Callable[[MetadataImage], bool]:
    return lambda image: GROUP_METADATA_TOPIC in image.topics and owners(image) == set(names)


async def share(node: MetadataSubscription, *names: str) -> MetadataImage:
    """Have the partitions of the groups' topic made, which these coordinators own then."""
    await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
    return await until(node, are(*names))


def has_served(controller: RunningController) -> ActiveController:
    assert controller.controller.active is not None
    return controller.controller.active


async def after_more(node: MetadataSubscription, name: str = "later") -> MetadataImage:
    """The image once all is decided that was asked before now."""
    await create(node, name)
    return await until(node, lambda image: name in image.topics)


async def test_others_own_what_a_coordinator_owned_before_it_has_gone(running: RunningController) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
    ):
        await share(node, "c1", "c2")
        await leaving.say_goodbye()
        await until(leaving, are("c1"))
        assert leaving.is_current


async def test_who_has_no_others_keeps_what_it_owns(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        async with watching(running.address, coordinator_request("c1")) as alone:
            await share(node, "c1")
            await alone.say_goodbye()
            assert owners(await after_more(node, "meanwhile")) == {"c1"}
        image = await after_more(node)
        assert owners(image) == set(image.coordinators) == {"c1"}
        assert {each.coordinator_epoch for each in image.topics[GROUP_METADATA_TOPIC].partitions} == {0}


async def test_nothing_is_handed_to_one_that_may_be_frozen(
    running: RunningController, silent: set[str]
) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
        watching(running.address, coordinator_request("frozen")),
    ):
        before = await share(node, "c1", "c2", "frozen")
        silent.add("frozen")
        await leaving.say_goodbye()
        after = await until(node, are("c1", "frozen"))
        assert owned(after, "frozen") == owned(before, "frozen")
        assert "frozen" in after.coordinators


async def test_what_nobody_came_back_for_goes_to_those_who_are_present(
    open_store: StoreFactory, tmp_path: Path, machine: Machine, silent: set[str]
) -> None:
    config = config_for(tmp_path, coordinator_session_timeout_ms=100, broker_session_timeout_ms=60_000)
    async with (
        running_controller(config, await open_store(), over_grpc()) as controller,
        watching(controller.address, node_request()) as node,
        watching(controller.address, coordinator_request("c1")),
        watching(controller.address, coordinator_request("frozen")),
    ):
        async with watching(controller.address, coordinator_request("c2")):
            before = await share(node, "c1", "c2", "frozen")
            silent.add("frozen")
        after = await until(node, are("c1", "frozen"))
        assert owned(after, "frozen") == owned(before, "frozen")
        assert machine.asked["unix:/c2"], "and it did not refuse"


async def test_who_says_goodbye_says_it_until_somebody_is_there_to_take_over(
    running: RunningController, silent: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only other one was not heard of lately, and then is."""
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 60.0)
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
    ):
        serving = Serving(running, tmp_path)
        await serving.is_ready()
        await share(node, "c1", "c2")
        silent.add("c1")
        stopping = asyncio.create_task(serving.stop())
        heard = asyncio.Event()
        heard_from = ActiveController.heard_from

        def hear(active: ActiveController, request: pb.ServiceHeartbeatRequest) -> bool:
            if request.leaving:
                heard.set()
            return heard_from(active, request)

        monkeypatch.setattr(ActiveController, "heard_from", hear)
        await heard.wait()
        assert owners(await after_more(node)) == {"c1", "c2"}
        silent.clear()
        await stopping
        await until(node, are("c1"))


async def test_a_hand_over_that_finds_no_place_in_the_queue_ends_nothing(
    running: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise TooManyRequests

    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
    ):
        await share(node, "c1", "c2")
        with monkeypatch.context() as patch:
            patch.setattr(has_served(running).writer, "submit", refuse)
            await leaving.say_goodbye()
            await has_served(running)._hand_over_coordinator("c2")
        await leaving.say_goodbye()
        await until(node, are("c1"))


async def test_nothing_is_taken_from_one_that_is_there(running: RunningController) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")),
    ):
        await share(node, "c1", "c2")
        await has_served(running)._hand_over_coordinator("c2")
        assert owners(await after_more(node)) == {"c1", "c2"}


@pytest.mark.parametrize("has_ended", [True, False])
async def test_one_that_says_nothing_is_asked_whether_it_has_ended(
    running: RunningController, machine: Machine, has_ended: bool
) -> None:
    machine.refused = {"unix:/c2"} if has_ended else set()
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        AsyncExitStack() as of_two,
    ):
        await of_two.enter_async_context(watching(running.address, coordinator_request("c2")))
        await share(node, "c1", "c2")
        await of_two.aclose()
        if has_ended:
            await until(node, are("c1"))
            return
        await machine.asks("unix:/c2", 5)
        assert owners(node.image) == {"c1", "c2"}


async def test_one_that_came_back_is_not_asked_any_more(running: RunningController, machine: Machine) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
    ):
        async with watching(running.address, coordinator_request("c2")):
            await share(node, "c1", "c2")
        await machine.asks("unix:/c2", 2)
        async with watching(running.address, coordinator_request("c2", "next")):
            await until(node, lambda image: image.coordinators["c2"].incarnation_id == "next")
            probes = has_served(running)._lost_coordinators._tasks.values()
            await asyncio.wait_for(asyncio.gather(*probes), 10)


async def test_nobody_is_asked_once_the_term_is_over(
    open_store: StoreFactory, patient: ControllerConfig, machine: Machine
) -> None:
    async with running_controller(patient, await open_store(), over_grpc()) as controller:
        async with watching(controller.address, coordinator_request("c1")) as alone:
            await until(alone, lambda image: "c1" in image.coordinators)
        await machine.asks("unix:/c1", 1)
        probes = list(has_served(controller)._lost_coordinators._tasks.values())
        assert probes
    await asyncio.wait(probes, timeout=10)
    assert all(probe.cancelled() for probe in probes)


async def test_one_that_dies_while_others_have_time_to_come_is_asked_at_once(
    open_store: StoreFactory,
    patient: ControllerConfig,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with AsyncExitStack() as services:
        async with running_controller(patient, await open_store(), over_grpc()) as first:
            node = await services.enter_async_context(watching(first.address, node_request()))
            await services.enter_async_context(watching(first.address, coordinator_request("c1")))
            two = await services.enter_async_context(AsyncExitStack())
            await two.enter_async_context(watching(first.address, coordinator_request("c2")))
            await share(node, "c1", "c2")
        monkeypatch.setattr(active.limits, "FIRST_LOOK_SECONDS", 60.0)
        async with running_controller(patient, await open_store(), over_grpc()) as second:
            async with asyncio.timeout(10):
                while (led := second.controller.active) is None or not led.is_ready:
                    await asyncio.sleep(0.001)
                while len(list(led._sessions.attached(Kind.COORDINATOR))) < 2:
                    await asyncio.sleep(0.001)
            machine.refused = {"unix:/c2"}
            await two.aclose()
            await until(node, are("c1"))


async def test_one_that_has_ended_while_no_controller_led_is_not_waited_for(
    open_store: StoreFactory,
    patient: ControllerConfig,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with AsyncExitStack() as services:
        async with running_controller(patient, await open_store(), over_grpc()) as first:
            node = await services.enter_async_context(watching(first.address, node_request()))
            await services.enter_async_context(watching(first.address, coordinator_request("c1")))
            async with watching(first.address, coordinator_request("c2")):
                await share(node, "c1", "c2")
                # Nobody looks for it in this term: the controller dies in the same moment.
                monkeypatch.setattr(has_served(first), "_look_for", lambda _: None)
        machine.refused = {"unix:/c2"}
        async with running_controller(patient, await open_store(), over_grpc()):
            await until(node, are("c1"))


async def test_those_who_start_with_the_controller_are_waited_for(
    open_store: StoreFactory,
    patient: ControllerConfig,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or who comes first would be given everything, and the next one half of it."""
    async with AsyncExitStack() as services:
        async with running_controller(patient, await open_store(), over_grpc()) as first:
            node = await services.enter_async_context(watching(first.address, node_request()))
            async with (
                watching(first.address, coordinator_request("c1")),
                watching(first.address, coordinator_request("c2")),
            ):
                await share(node, "c1", "c2")
        monkeypatch.setattr(active.limits, "FIRST_LOOK_SECONDS", 60.0)
        machine.refused = {"unix:/c1", "unix:/c2"}
        machine.asked.clear()
        async with running_controller(patient, await open_store(), over_grpc()) as second:
            await services.enter_async_context(watching(second.address, coordinator_request("c1", "next")))
            await until(node, lambda image: image.coordinators["c1"].incarnation_id == "next")
            assert owners(await after_more(node)) == {"c1", "c2"}
            assert not machine.asked.keys() & machine.refused


async def test_a_goodbye_of_a_former_process_takes_nothing_from_the_next(
    running: RunningController, machine: Machine
) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")) as other,
    ):
        async with watching(running.address, coordinator_request("c2", "b")):
            await share(node, "c1", "c2")
        late = pb.ServiceHeartbeatRequest(coordinator_id="c2", incarnation_id="a", leaving=True)
        with pytest.raises(Refused):
            await other.controller.ServiceHeartbeat(late)
        assert owners(await after_more(node)) == {"c1", "c2"}


async def test_who_has_said_goodbye_is_not_registered_again(running: RunningController) -> None:
    """Its stream breaks, or another controller takes over, while it stops."""
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
        watching(running.address, coordinator_request("c2")) as leaving,
    ):
        await share(node, "c1", "c2")
        await leaving.say_goodbye()
        await until(leaving, are("c1"))
        await leaving._reopen()
        await create(node, "later")
        image = await until(leaving, lambda image: "later" in image.topics)
        assert owners(image) == set(image.coordinators) == {"c1"}


class Serving:
    """The coordinator c2, in this process."""

    def __init__(self, running: RunningController, directory: Path) -> None:
        self._context = ServiceContext("coordinator", over_grpc())
        config = CoordinatorConfig(
            coordinator_id="c2",
            listen_address=f"unix:{directory}/coordinator.sock",
            controllers=(running.address,),
        )
        self._task = asyncio.create_task(serve(config, self._context))

    async def is_ready(self) -> None:
        async with asyncio.timeout(10):
            while self._context.health.unmet():
                await asyncio.sleep(0.001)

    async def stop(self) -> float:
        """Returns how long that took, in s."""
        begun = time.monotonic()
        self._context.stopping.set()
        async with asyncio.timeout(10):
            await self._task
        return time.monotonic() - begun


async def test_a_coordinator_answers_until_others_own_what_it_owned(
    running: RunningController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = RpcServer.stop
    async with (
        watching(running.address, pb.WatchRequest()) as observer,
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c1")),
    ):

        async def stop_seen(server: RpcServer, grace_seconds: float | None) -> None:
            assert owners(has_served(running).image) == {"c1"}
            await stop(server, grace_seconds)

        serving = Serving(running, tmp_path)
        await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        await until(observer, are("c1", "c2"))
        await serving.is_ready()
        monkeypatch.setattr(RpcServer, "stop", stop_seen)
        await serving.stop()


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_coordinator_whose_place_nobody_takes_stops_all_the_same(
    running: RunningController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    async def hand_nothing_over(*_: object) -> None: ...

    monkeypatch.setattr(ActiveController, "_hand_over_coordinator", hand_nothing_over)
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 60.0 if is_alone else 0.1)
    async with AsyncExitStack() as others:
        if not is_alone:
            await others.enter_async_context(watching(running.address, coordinator_request("c1")))
        serving = Serving(running, tmp_path)
        await serving.is_ready()
        seconds = await serving.stop()
    assert is_alone or seconds >= 0.1


async def test_who_comes_back_has_nobody_given_more_who_may_be_frozen(
    running: RunningController, silent: set[str]
) -> None:
    async with (
        watching(running.address, node_request()) as node,
        watching(running.address, coordinator_request("c2")),
        watching(running.address, coordinator_request("frozen")),
    ):
        async with watching(running.address, coordinator_request("c1")) as leaving:
            before = await share(node, "c1", "c2", "frozen")
            silent.add("frozen")
            await leaving.say_goodbye()
            await until(node, are("c2", "frozen"))
        async with watching(running.address, coordinator_request("c1", "next")):
            again = await until(node, are("c1", "c2", "frozen"))
            assert set(owned(again, "frozen")) <= set(owned(before, "frozen"))
