"""A broker's services end in order, whichever of them ends first and for whatever reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from barnabas.coordinator import limits as coordinator_limits
from barnabas.gateway import limits as gateway_limits
from barnabas.host import service as host
from barnabas.host.config import BrokerConfig
from barnabas.host.local_calls import LocalCalls
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.service import STOP_MARGIN_SECONDS, STOP_SECONDS_MAX, ServiceContext, StartError
from barnabas.messages.storage_pb2 import AppendRequest
from barnabas.metadata.heartbeats import GOODBYE_SECONDS_MAX
from barnabas.storage import limits as storage_limits


class Part:
    """A service that ends when it is told to and the test lets it, or when the test has it fail."""

    def __init__(self) -> None:
        self.started, self.told, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.failure: Exception | None = None
        self.is_over = False
        self.network: Any = None
        self.more: dict[str, Any] = {}

    async def serve(self, _: Any, context: ServiceContext, **more: Any) -> None:
        self.network, self.more = context.environment.network, more
        self.started.set()
        stopping = asyncio.create_task(context.stopping.wait())
        failing = asyncio.create_task(self.may_end.wait())
        await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if context.stopping.is_set():
            self.told.set()
            await failing
        failing.cancel()
        self.is_over = True
        if self.failure is not None:
            raise self.failure


class Coordinator(Part):
    """One that first waits for the node, as its network has it."""

    async def serve(self, config: Any, context: ServiceContext, **more: Any) -> None:
        server = context.environment.network.listen("unix:/b")
        await server.serve_coordinator(cast(Any, None))
        await super().serve(config, context, **more)


class Broker:
    """The parts, and the service that runs them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, coordinator: Part | None = None) -> None:
        self.gateway, self.node, self.coordinator = Part(), Part(), coordinator or Part()
        monkeypatch.setattr(host.gateway, "serve", self.gateway.serve)
        monkeypatch.setattr(host.storage, "serve", self.node.serve)
        self.context = ServiceContext("broker", seeded_environment())
        storage = SimpleNamespace(node_id=1, listen_address="unix:/b", advertised_address="")
        hosted = None if coordinator is None else SimpleNamespace()
        config = SimpleNamespace(gateway=None, storage=storage, coordinator=hosted)
        serving = host.serve(
            cast(BrokerConfig, config), self.context, serve_coordinator=self.coordinator.serve
        )
        self.running = asyncio.create_task(serving)

    async def end(self) -> None:
        for each in (self.gateway, self.coordinator, self.node):
            each.may_end.set()
        self.context.stopping.set()
        await self.running


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker(monkeypatch)
    await made.gateway.started.wait()
    await made.node.started.wait()
    return made


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_node_serves_until_the_gateway_has_answered_its_clients(broker: Broker) -> None:
    broker.context.stopping.set()
    await broker.gateway.told.wait()
    await settle()
    assert not broker.node.told.is_set()
    broker.gateway.may_end.set()
    await broker.node.told.wait()
    assert broker.gateway.is_over
    await settle()
    assert not broker.running.done(), "the node closes its logs"
    broker.node.may_end.set()
    await broker.running


@pytest.mark.parametrize("failure", [None, StartError("its disk is another's")])
async def test_a_node_that_gives_up_takes_the_gateway_with_it(
    broker: Broker, failure: Exception | None
) -> None:
    broker.node.failure = failure
    broker.node.may_end.set()
    await broker.gateway.told.wait()
    await settle()
    assert not broker.running.done(), "the gateway still answers its clients"
    broker.gateway.may_end.set()
    if failure is None:
        await broker.running
    else:
        with pytest.raises(StartError, match="another's"):
            await broker.running


async def test_the_coordinator_ends_between_the_gateway_and_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch, Part())
    for each in (broker.gateway, broker.node, broker.coordinator):
        await each.started.wait()
    broker.context.stopping.set()
    ending = [broker.gateway, broker.coordinator, broker.node]
    while ending:
        await ending[0].told.wait()
        await settle()
        assert not any(each.told.is_set() for each in ending[1:])
        ending.pop(0).may_end.set()
    await broker.running


async def test_the_coordinator_is_started_before_the_node_that_serves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch, Part())
    started: list[str] = []
    for name in ("gateway", "node", "coordinator"):
        monkeypatch.setattr(getattr(broker, name).started, "set", lambda name=name: started.append(name))
    while len(started) < 3:
        await asyncio.sleep(0)
    assert started.index("coordinator") < started.index("node")
    await broker.end()


async def test_all_services_reach_one_another_by_plain_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, Part())
    for each in (broker.gateway, broker.node, broker.coordinator):
        await each.started.wait()
    for each in (broker.gateway, broker.node, broker.coordinator):
        assert isinstance(each.network.connect_coordinator("unix:/b"), LocalCalls)
        assert isinstance(each.network.connect_transactions("unix:/b"), LocalCalls)
    peers: list[bool] = []

    def take_from_peer(*_: Any, is_client: bool) -> Any:
        peers.append(is_client)
        return SimpleNamespace(serve_woken=asyncio.Event().wait, close=lambda: None)

    fetches = SimpleNamespace(
        take_from_peer=take_from_peer, purgatory=SimpleNamespace(end_reads=lambda: None)
    )
    taken: list[Any] = []
    appends = SimpleNamespace(handle=lambda request, _: taken.append(request))
    gateways, coordinators = (
        broker.gateway.more["local"],
        broker.coordinator.network.connect_storage("unix:/b"),
    )
    assert gateways is not coordinators
    async with broker.node.more["offer"](SimpleNamespace(appends=appends, fetches=fetches), None, None):
        assert peers == [True, False], "who reads for clients is first"
        for link in (gateways, coordinators):
            told = AppendRequest()
            link.appends.send(told)
            assert taken.pop() is told
    await broker.end()


@pytest.mark.parametrize("failure", [None, StartError("the controller refuses this coordinator")])
async def test_a_coordinator_that_gives_up_takes_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    broker = Broker(monkeypatch, Part())
    broker.coordinator.failure = failure
    for each in (broker.coordinator, broker.gateway, broker.node):
        each.may_end.set()
    if failure is None:
        await broker.running
    else:
        with pytest.raises(StartError, match="refuses this coordinator"):
            await broker.running
    assert broker.gateway.is_over
    assert broker.node.is_over


async def test_a_broker_that_stops_before_its_node_serves_keeps_no_coordinator_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch, Coordinator())
    await broker.node.started.wait()
    async with asyncio.timeout(10):
        await broker.end()


async def test_a_coordinator_whose_node_gives_up_does_not_begin_while_the_gateway_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be given what it cannot serve."""
    broker = Broker(monkeypatch, Coordinator())
    broker.node.failure = StartError("its disk is another's")
    broker.node.may_end.set()
    await broker.gateway.told.wait()
    await settle()
    assert not broker.coordinator.started.is_set()
    broker.gateway.may_end.set()
    broker.coordinator.may_end.set()
    with pytest.raises(StartError, match="its disk is another's"):
        await broker.running


def test_what_all_wait_for_fits_into_the_time_that_a_stop_has() -> None:
    gateway = gateway_limits.STOP_ANSWERS_SECONDS_MAX + GOODBYE_SECONDS_MAX
    node = storage_limits.STOP_ANSWERS_SECONDS_MAX + storage_limits.STOP_GRACE_SECONDS + GOODBYE_SECONDS_MAX
    coordinator = coordinator_limits.STOP_GRACE_SECONDS + GOODBYE_SECONDS_MAX
    before_closing = storage_limits.HAND_OVER_SECONDS_MAX + gateway + coordinator + node
    assert STOP_SECONDS_MAX - STOP_MARGIN_SECONDS - before_closing >= 12, "for the directories' end"
    starting = storage_limits.STARTING_SECONDS_MAX + storage_limits.CLOSING_SECONDS_MAX
    assert gateway_limits.STOP_ANSWERS_SECONDS_MAX + starting < STOP_SECONDS_MAX


def test_containers_are_given_that_time() -> None:
    """Docker gives ten seconds where a service says nothing: enough for whoever has no logs to close."""
    root = Path(__file__).resolve().parents[3]
    values = yaml.safe_load((root / "charts/barnabas/values.yaml").read_text())
    drain = max(values[each].get("drainSeconds", 0) for each in ("gateway", "storage"))
    assert values["storage"]["terminationGracePeriodSeconds"] - drain >= STOP_SECONDS_MAX
    services = yaml.safe_load((root / "deploy/compose.yaml").read_text())["services"]
    granted = {each["stop_grace_period"] for name, each in services.items() if name.startswith("storage")}
    assert granted == {"60s"}
    assert STOP_SECONDS_MAX <= 60
    assert gateway_limits.STOP_ANSWERS_SECONDS_MAX < 10 - 5
    assert (
        values["gateway"]["terminationGracePeriodSeconds"] - drain > gateway_limits.STOP_ANSWERS_SECONDS_MAX
    )
