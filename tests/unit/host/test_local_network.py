"""A broker's services reach one another without a network, and others at one address, from one moment on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.host.local_calls import LocalCalls
from barnabas.host.local_network import CoordinatorNetwork, LocalNetwork
from barnabas.host.local_node import LocalNode
from barnabas.links.errors import Unreachable
from barnabas.links.network import Server
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import coordinator_pb2, transactions_pb2
from barnabas.rpc.network import GrpcNetwork

ADVERTISED = "broker-1.example:19091"
QUESTION = TransactionQuestion("a", 7, 0, False, "t", 0)
JOIN = coordinator_pb2.JoinGroupRequest(group_id="g")


class Groups:
    async def JoinGroup(self, _: coordinator_pb2.JoinGroupRequest) -> coordinator_pb2.JoinGroupResponse:
        return coordinator_pb2.JoinGroupResponse(member_id="m")


class Transactions:
    async def EndTxn(self, _: transactions_pb2.EndTxnRequest) -> transactions_pb2.EndTxnResponse:
        return transactions_pb2.EndTxnResponse(error_code=5)

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        return question is QUESTION


class Broker:
    """The networks of a broker, and the server of each of its services."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}/b"
        self.node = LocalNode(1, reads_for_clients=False)
        self.network = LocalNetwork(GrpcNetwork(), self.address, ADVERTISED)
        self.of_coordinator = CoordinatorNetwork(self.network, self.node)
        self.coordinator = self.of_coordinator.listen(self.address)
        self.storage: Server | None = None

    def begin_coordinator(self) -> asyncio.Task[None]:
        serving = self.coordinator.serve_coordinator(cast(Any, Groups()), cast(Any, Transactions()))
        return asyncio.create_task(serving)

    async def serve_node(self) -> None:
        self.storage = self.network.listen(self.address)
        await self.storage.serve_storage(cast(Any, None), StorageStreamCounts())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path)
    yield made
    await made.coordinator.stop(None)
    if made.storage is not None:
        await made.storage.stop(None)


async def member_at(network: Any, address: str) -> str:
    link = network.connect_coordinator(address)
    try:
        return str((await link.JoinGroup(JOIN, timeout=30)).member_id)
    finally:
        await link.close()


async def end_at(network: Any, address: str) -> int:
    link = network.connect_transactions(address)
    try:
        return int((await link.EndTxn(transactions_pb2.EndTxnRequest(), timeout=30)).error_code)
    finally:
        await link.close()


async def test_the_coordinator_is_served_with_the_node(broker: Broker) -> None:
    beginning = broker.begin_coordinator()
    await asyncio.sleep(0)
    assert not beginning.done(), "what it owns cannot be loaded yet"
    with pytest.raises(Unreachable):
        await member_at(broker.network, broker.address)
    assert not Path(broker.address.removeprefix("unix:")).exists(), (
        "who asks there takes the node for one that lives"
    )
    await broker.serve_node()
    await beginning
    for network, address in (
        (broker.network, broker.address),
        (broker.network, ADVERTISED),
        (broker.of_coordinator, ADVERTISED),
        (GrpcNetwork(), broker.address),
    ):
        assert await member_at(network, address) == "m"


async def test_of_a_transaction_the_coordinator_in_the_process_may_say_yes_at_once(broker: Broker) -> None:
    here = broker.network.connect_transactions(ADVERTISED)
    over_the_network = GrpcNetwork().connect_transactions(broker.address)
    beginning = broker.begin_coordinator()
    assert not here.verify_nowait(QUESTION), "it does not serve"
    await broker.serve_node()
    await beginning
    assert here.verify_nowait(QUESTION)
    assert not here.verify_nowait(QUESTION._replace(partition=1))
    assert not over_the_network.verify_nowait(QUESTION)
    await broker.coordinator.stop(0)
    assert not here.verify_nowait(QUESTION)
    await over_the_network.close()


async def test_who_is_in_the_process_is_called_and_others_are_connected_to(broker: Broker) -> None:
    for network in (broker.network, broker.of_coordinator):
        for address in (broker.address, ADVERTISED):
            assert isinstance(network.connect_coordinator(address), LocalCalls)
            assert isinstance(network.connect_transactions(address), LocalCalls)
        others = [
            network.connect_coordinator("unix:/elsewhere"),
            network.connect_transactions("unix:/elsewhere"),
            network.connect_storage("unix:/elsewhere", reads_for_clients=False),
        ]
        for other in others:
            assert not isinstance(other, (LocalCalls, LocalNode))
            await other.close()
    for address in (broker.address, ADVERTISED):
        assert broker.of_coordinator.connect_storage(address, reads_for_clients=False) is broker.node


async def test_links_to_others_are_what_the_services_ask_for() -> None:
    asked: list[tuple[Any, ...]] = []
    outer = SimpleNamespace(connect_storage=lambda *told, **more: asked.append((told, more)))
    network = LocalNetwork(cast(Any, outer), "unix:/b", "")
    counts, room = StorageStreamCounts(), cast(Any, object())
    more = {"reads_for_clients": False, "append_bytes_max": 7, "answer_room": room}
    for each in (network, CoordinatorNetwork(network, LocalNode(1))):
        each.connect_storage("unix:/elsewhere", counts, **cast(Any, more))
    assert asked == [(("unix:/elsewhere", counts), more)] * 2


async def test_the_coordinator_is_there_before_the_node_is() -> None:
    """Who found the node, and nobody who coordinates, would take it for one of an earlier version."""
    served: list[str] = []

    class Outer:
        """Says who is served at its address."""

        address = "unix:/b"

        def another(self) -> Outer:
            return self

        async def serve_coordinator(self, *_: Any) -> None:
            served.append("coordinator")

        async def serve_storage(self, *_: Any) -> None:
            served.append("storage node")

    network = LocalNetwork(cast(Any, SimpleNamespace(listen=lambda _: Outer())), "unix:/b", "")
    of_coordinator = CoordinatorNetwork(network, LocalNode(1, reads_for_clients=False))
    serving = of_coordinator.listen("unix:/b").serve_coordinator(cast(Any, Groups()))
    beginning = asyncio.create_task(serving)
    await asyncio.sleep(0)
    await network.listen("unix:/b").serve_storage(cast(Any, None), StorageStreamCounts())
    await beginning
    assert served == ["coordinator", "storage node"]


async def test_transactions_are_ended_by_a_plain_call(broker: Broker) -> None:
    beginning = broker.begin_coordinator()
    await broker.serve_node()
    await beginning
    assert await end_at(broker.network, ADVERTISED) == 5


async def test_a_coordinator_that_stops_takes_nothing_more_from_anybody(broker: Broker) -> None:
    beginning = broker.begin_coordinator()
    await broker.serve_node()
    await beginning
    await broker.coordinator.stop(0.01)
    for network in (broker.network, GrpcNetwork()):
        with pytest.raises(Unreachable):
            await member_at(network, broker.address)
        with pytest.raises(Unreachable):
            await end_at(network, broker.address)
    assert Path(broker.address.removeprefix("unix:")).exists(), "the node goes on"


async def test_a_coordinator_that_comes_after_the_node_is_served_all_the_same(broker: Broker) -> None:
    await broker.serve_node()
    await broker.begin_coordinator()
    for network in (broker.network, GrpcNetwork()):
        assert await member_at(network, broker.address) == "m"


async def test_a_coordinator_waits_no_longer_for_a_node_when_the_broker_stops(broker: Broker) -> None:
    beginning = broker.begin_coordinator()
    await asyncio.sleep(0)
    broker.network.coordinator.go_on()
    await beginning
    with pytest.raises(Unreachable):
        await member_at(broker.network, broker.address)


async def test_a_broker_without_a_coordinator_gives_its_address_back(broker: Broker) -> None:
    await broker.serve_node()
    with pytest.raises(Unreachable):
        await member_at(broker.network, ADVERTISED)
    assert broker.storage is not None
    await broker.storage.stop(None)
    assert not Path(broker.address.removeprefix("unix:")).exists()
