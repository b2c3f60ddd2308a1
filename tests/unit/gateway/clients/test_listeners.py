"""What clients are told of brokers: a port per node, one broker, `auto`, and which gateway stands for which node."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from gateway_harness import node_record

from barnabas.gateway.clients.listeners import Endpoint, Listener, parse_listeners, visible_brokers
from barnabas.kernel.service import StartError
from barnabas.messages.metadata_pb2 import AdvertisedListener, GatewayRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, gateway_key


def image(*records: MetadataRecord) -> MetadataImage:
    return MetadataImage().apply(records, 1)


def gateway_record(
    gateway_id: str, port: int, *, rack: str = "", port_per_node: bool = False, node_id: int | None = None
) -> MetadataRecord:
    listener = AdvertisedListener(name="PLAINTEXT", host=gateway_id, port=port, port_per_node=port_per_node)
    gateway = GatewayRecord(gateway_id=gateway_id, rack=rack, listeners=[listener], node_id=node_id)
    return MetadataRecord(key=gateway_key(gateway_id), gateway=gateway)


def listener(host: str = "", *, port_per_node: bool = True) -> Listener:
    return Listener("PLAINTEXT", "0.0.0.0", 9092, host, 9092, port_per_node)


def shown(at: Listener, known: MetadataImage) -> Mapping[int, Endpoint]:
    return visible_brokers(known, at, "10.9.9.9")


def test_parsing() -> None:
    internal, external = parse_listeners(
        ["internal://0.0.0.0:9092", "EXTERNAL://[::1]:19092"], ["internal://kafka.local:443"], "port"
    )
    assert (internal.name, internal.advertised_host, internal.advertised_port) == (
        "INTERNAL",
        "kafka.local",
        443,
    )
    assert (external.host, external.port, external.advertised_host) == ("::1", 19092, "::1")
    (auto,) = parse_listeners(["PLAINTEXT://:9092"], [], "one")
    assert (auto.advertised_host, auto.port_per_node) == ("", False)


@pytest.mark.parametrize(
    ("listeners", "advertised", "advertise"),
    [
        (["nonsense"], [], "port"),
        (["A://host:notaport"], [], "port"),
        (["A://host:70000"], [], "port"),
        (["A://host:1", "a://host:2"], [], "port"),
        (["A://host:1"], ["B://host:1"], "port"),
        (["A://host:1"], [], "both"),
    ],
)
def test_bad_settings_do_not_start(listeners: list[str], advertised: list[str], advertise: str) -> None:
    with pytest.raises(StartError):
        parse_listeners(listeners, advertised, advertise)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "sasl_ssl"])
def test_a_listener_that_promises_security_is_refused(protocol: str) -> None:
    with pytest.raises(StartError, match="TLS and SASL are not served yet"):
        parse_listeners([f"{protocol}://127.0.0.1:9093"], [], "port")


def test_auto_names_the_address_that_the_client_used() -> None:
    known = image(node_record(1), node_record(2, rack="east"), node_record(3, fenced=True))
    assert shown(listener(), known) == {
        1: Endpoint(1, "10.9.9.9", 9092, None),
        2: Endpoint(2, "10.9.9.9", 9093, "east"),
    }


def test_while_every_node_is_fenced_all_are_shown() -> None:
    known = image(node_record(1, fenced=True), node_record(2, fenced=True))
    assert shown(listener(), known) == {
        1: Endpoint(1, "10.9.9.9", 9092, None),
        2: Endpoint(2, "10.9.9.9", 9093, None),
    }


def test_one_broker_is_the_lowest_that_ever_registered() -> None:
    known = image(node_record(1, fenced=True), node_record(2))
    assert shown(listener(port_per_node=False), known) == {1: Endpoint(1, "10.9.9.9", 9092, None)}
    assert shown(listener("kafka", port_per_node=False), image()) == {1: Endpoint(1, "kafka", 9092, None)}


def test_advertised_host_without_registered_gateways() -> None:
    assert shown(listener("kafka"), image(node_record(2)))[2] == Endpoint(2, "kafka", 9093, None)


def test_each_node_stays_with_its_gateway_when_another_one_goes() -> None:
    nodes = [node_record(node_id) for node_id in range(1, 31)]
    gateways = [gateway_record(name, 9092, port_per_node=True) for name in ("a", "b", "c")]
    before = shown(listener("x"), image(*nodes, *gateways))
    after = shown(listener("x"), image(*nodes, *gateways[:2]))
    assert {endpoint.host for endpoint in before.values()} == {"a", "b", "c"}
    assert all(after[node_id] == endpoint for node_id, endpoint in before.items() if endpoint.host != "c")
    assert all(endpoint.port == 9091 + node_id for node_id, endpoint in before.items())


def test_nodes_are_reached_through_a_gateway_of_their_rack() -> None:
    gateways = [
        gateway_record("east-gateway", 1, rack="east"),
        gateway_record("west-gateway", 2, rack="west"),
    ]
    known = image(*(node_record(node_id, rack="east") for node_id in range(1, 9)), *gateways)
    assert {(endpoint.host, endpoint.port) for endpoint in shown(listener("x"), known).values()} == {
        ("east-gateway", 1)
    }


def test_a_node_is_reached_at_the_gateway_in_its_own_process() -> None:
    """Whatever racks say; node 0 is a node like any, and not what a gateway alone has."""
    nodes = [node_record(node_id, rack="east", position=node_id) for node_id in range(6)]
    brokers = [
        gateway_record(f"broker-{node_id}", 9092, rack="west", port_per_node=True, node_id=node_id)
        for node_id in range(6)
    ]
    alone = [gateway_record(f"alone-{number}", 9092, rack="east", port_per_node=True) for number in range(3)]
    known = image(*nodes, *brokers, *alone)
    assert shown(listener("x"), known) == {
        node_id: Endpoint(node_id, f"broker-{node_id}", 9092 + node_id, "east") for node_id in range(6)
    }


def test_while_the_gateway_beside_a_node_is_not_there_another_stands_for_it() -> None:
    nodes = [node_record(node_id, position=node_id) for node_id in range(3)]
    brokers = [
        gateway_record(f"broker-{node_id}", 9092, port_per_node=True, node_id=node_id) for node_id in (0, 1)
    ]
    found = shown(listener("x"), image(*nodes, *brokers))
    assert [found[node_id].host for node_id in (0, 1)] == ["broker-0", "broker-1"]
    assert found[2].host in ("broker-0", "broker-1")
    assert found[2].port == 9094


@pytest.mark.parametrize("others", [[], [gateway_record("other", 9092)]], ids=["nobody", "another"])
def test_while_it_is_away_its_last_place_counts_whoever_else_is_there(others: list[MetadataRecord]) -> None:
    away = {1: gateway_record("broker-1", 9192, node_id=1).gateway}
    found = visible_brokers(
        image(node_record(1), *others), listener("x"), "10.9.9.9", own_gateway_of=away.get
    )
    assert found == {1: Endpoint(1, "broker-1", 9192, None)}


def test_where_it_is_counts_and_not_where_it_was() -> None:
    known = image(node_record(1), gateway_record("broker-1", 9092, node_id=1))
    before = {1: gateway_record("broker-1", 9192, node_id=1).gateway}
    found = visible_brokers(known, listener("x"), "10.9.9.9", own_gateway_of=before.get)
    assert found == {1: Endpoint(1, "broker-1", 9092, None)}


def test_only_who_has_the_listener_at_an_address_stands_for_a_node() -> None:
    elsewhere = gateway_record("elsewhere", 9092, node_id=1)
    elsewhere.gateway.listeners[0].name = "OTHER"
    without_host = gateway_record("", 9093, node_id=1)
    known = image(node_record(1), elsewhere, without_host, gateway_record("one", 9094))
    assert shown(listener("x"), known) == {1: Endpoint(1, "one", 9094, None)}


def test_a_fenced_node_that_is_forgotten_is_not_shown() -> None:
    known = image(node_record(1), node_record(2, fenced=True))
    assert set(visible_brokers(known, listener("x"), "10.9.9.9", fenced_but_shown=(2, 3))) == {1, 2}


@pytest.mark.parametrize(
    ("at", "told", "is_there"),
    [
        (listener("a.test"), ("a.test", 9094), True),
        (listener("a.test"), ("a.test", 9093), False),
        (listener("a.test"), ("b.test", 9094), False),
        (listener(), ("10.9.9.9", 9094), True),
        (listener(), ("10.9.9.8", 9094), False),
        (listener("a.test", port_per_node=False), ("a.test", 9092), True),
    ],
)
def test_who_is_sent_to_a_place_comes_to_a_port(at: Listener, told: tuple[str, int], is_there: bool) -> None:
    assert at.is_at(Endpoint(3, *told, None), "10.9.9.9", 2) == is_there
