"""Brokers whose own gateway is away: clients are told of the place where it was, and will be again."""

from __future__ import annotations

import asyncio

import pytest
from gateway_harness import Gateway, node_record

from barnabas.gateway import limits
from barnabas.gateway.clients.listeners import Listener
from barnabas.messages.metadata_pb2 import AdvertisedListener, GatewayRecord, MetadataRecord
from barnabas.metadata.image import gateway_key, node_key

METADATA, DESCRIBE_CLUSTER = 3, 60
PLACES = {1: ("one", 9092), 2: ("two", 19092), 3: ("three", 29092)}
"""Of brokers that have the port for their own node only: that of another one is nobody's."""


def gateway_record(node_id: int, place: tuple[str, int] | None = None) -> MetadataRecord:
    host, port = place or PLACES[node_id]
    listener = AdvertisedListener(name="PLAINTEXT", host=host, port=port - (node_id - 1), port_per_node=True)
    gateway = GatewayRecord(gateway_id=f"broker-{node_id}", listeners=[listener], node_id=node_id)
    return MetadataRecord(key=gateway_key(f"broker-{node_id}"), gateway=gateway)


GONE = {node_id: MetadataRecord(key=gateway_key(f"broker-{node_id}")) for node_id in PLACES}


class Brokers(Gateway):
    """The gateway of the first of three brokers."""

    def __init__(self, away: int | None = None) -> None:
        """`away` is a broker that has long been gone, and was never seen."""
        super().__init__([], Listener("PLAINTEXT", "0.0.0.0", 9092, "one", 9092, port_per_node=True))
        self.change(*(node_record(each, fenced=each == away) for each in PLACES))
        self.change(*(gateway_record(each) for each in PLACES if each != away))

    def change(self, *records: MetadataRecord) -> None:
        before = self.metadata.image
        self.metadata.apply(*records)
        self.parts.lately_fenced.on_metadata(before, self.metadata.image)
        self.parts.own_gateways.on_metadata(before, self.metadata.image)

    async def shown(self) -> dict[int, tuple[str, int]]:
        answer = await self.ask(METADATA, 9, {"topics": []})
        return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}


@pytest.mark.parametrize("away", [2, 3])
async def test_a_broker_has_one_place_whatever_becomes_of_its_process(away: int) -> None:
    """librdkafka would stay with another one: it takes the coordinator from an answer by its id alone."""
    brokers = Brokers()
    assert await brokers.shown() == PLACES
    brokers.change(GONE[away])
    assert await brokers.shown() == PLACES, "its node may be known to be gone only later"
    brokers.change(node_record(away, fenced=True))
    assert await brokers.shown() == PLACES, "and is shown for a moment then"
    brokers.change(node_record(away))
    assert await brokers.shown() == PLACES, "the node may be back before its gateway"
    brokers.change(gateway_record(away))
    assert await brokers.shown() == PLACES


async def test_a_node_that_has_long_been_without_a_gateway_of_its_own_is_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    monkeypatch.setattr(limits, "OWN_GATEWAY_MISSED_SECONDS", -1.0)
    brokers.change(GONE[2])
    assert (await brokers.shown())[2] in (("one", 9093), ("three", 29091))
    brokers.change(gateway_record(2))
    assert await brokers.shown() == PLACES


async def test_a_node_that_is_away_with_its_gateway_is_expected_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long: its node comes back before its gateway does."""
    brokers = Brokers()
    brokers.change(GONE[2])
    brokers.change(node_record(2, fenced=True))
    with monkeypatch.context() as long_after:
        long_after.setattr(limits, "OWN_GATEWAY_MISSED_SECONDS", -1.0)
        brokers.change(node_record(3))
        assert brokers.parts.own_gateways.of(2) is not None
    brokers.change(node_record(2))
    assert await brokers.shown() == PLACES
    brokers.change(MetadataRecord(key=node_key(2)))
    assert brokers.parts.own_gateways.of(2) is None


async def test_a_broker_is_shown_as_soon_as_its_gateway_serves_though_its_node_is_fenced() -> None:
    """librdkafka forgets who is missing, also the broker that it asks."""
    brokers = Brokers(away=2)
    assert sorted(await brokers.shown()) == [1, 3]
    brokers.change(gateway_record(2))
    assert await brokers.shown() == PLACES
    described = await brokers.ask(DESCRIBE_CLUSTER, 0, {})
    assert sorted(broker.broker_id for broker in described.brokers) == [1, 3], "it takes no administration"


async def test_a_broker_that_came_back_at_another_place_is_expected_there() -> None:
    brokers = Brokers()
    brokers.change(GONE[2])
    brokers.change(gateway_record(2, ("moved", 19092)))
    brokers.change(GONE[2])
    assert await brokers.shown() == PLACES | {2: ("moved", 19092)}


async def test_a_gateway_alone_is_that_of_no_node() -> None:
    """It has no node id, which is not 0."""
    brokers = Brokers()
    listener = AdvertisedListener(name="PLAINTEXT", host="alone", port=9092, port_per_node=True)
    alone = GatewayRecord(gateway_id="alone", listeners=[listener])
    brokers.change(node_record(0, fenced=True), MetadataRecord(key=gateway_key("alone"), gateway=alone))
    assert await brokers.shown() == PLACES, "nobody starts"
    assert brokers.parts.own_gateways.of(0) is None


async def test_it_is_missed_from_when_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else changes meanwhile."""
    loop, passed = asyncio.get_running_loop(), 0.0
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + passed)
    brokers = Brokers()
    passed += 2 * limits.OWN_GATEWAY_MISSED_SECONDS
    brokers.change(node_record(3))
    brokers.change(GONE[2])
    assert await brokers.shown() == PLACES
    passed += 0.9 * limits.OWN_GATEWAY_MISSED_SECONDS
    brokers.change(node_record(3))
    assert await brokers.shown() == PLACES
    passed += 0.2 * limits.OWN_GATEWAY_MISSED_SECONDS
    assert await brokers.shown() != PLACES


async def test_a_gateway_whose_node_is_not_registered_shows_no_broker() -> None:
    brokers = Brokers()
    brokers.change(MetadataRecord(key=node_key(3)))
    assert sorted(await brokers.shown()) == [1, 2]
