"""NetworkPolicies let through what is needed, and little else."""

from __future__ import annotations

from typing import Any

import pytest
from chart_matrix import MATRIX, name_of
from rendered_chart import Rendered, component_of, container_ports, pod_labels, render

GRPC = 19090
HTTP = 8080
OUTSIDE = {"app": "somebody"}


def policies(rendered: Rendered, labels: dict[str, str]) -> list[Any]:
    """The specs of the policies for pods with these labels."""
    return [
        item["spec"]
        for item in rendered.of_kind("NetworkPolicy")
        if item["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ]


def has_port(rule: Any, port: int) -> bool:
    return any(
        entry["protocol"] == "TCP" and entry["port"] <= port <= entry.get("endPort", entry["port"])
        for entry in rule["ports"]
    )


def has_peer(peers: Any, labels: dict[str, str]) -> bool:
    """Whether pods of the same namespace are meant; a rule without peers means everybody."""
    return peers is None or any(
        "namespaceSelector" not in peer
        and peer.get("podSelector", {}).get("matchLabels", {"": ""}).items() <= labels.items()
        for peer in peers
    )


def labels_of(rendered: Rendered, component: str) -> dict[str, str]:
    if component == "outside":
        return OUTSIDE
    return pod_labels(rendered.workload(rendered.front if component == "gateway" else component))


def allows(rendered: Rendered, source: str, target: str, port: int) -> bool:
    """Whether pods of one component may connect to a port of another's; `outside` is a pod of others."""
    from_labels, to_labels = labels_of(rendered, source), labels_of(rendered, target)
    leaving, arriving = policies(rendered, from_labels), policies(rendered, to_labels)
    out = not leaving or any(
        has_port(rule, port) and has_peer(rule.get("to"), to_labels)
        for spec in leaving
        for rule in spec["egress"]
    )
    into = not arriving or any(
        has_port(rule, port) and has_peer(rule.get("from"), from_labels)
        for spec in arriving
        for rule in spec["ingress"]
    )
    return out and into


NEEDED = [
    ("gateway", "controller", GRPC),
    ("gateway", "storage", GRPC),
    ("gateway", "coordinator", GRPC),
    ("storage", "controller", GRPC),
    ("coordinator", "controller", GRPC),
    ("coordinator", "storage", GRPC),
    ("controller", "etcd", 2379),
    ("etcd", "etcd", 2380),
    ("gateway", "redis", 6379),
    ("test", "gateway", 9092),
    ("test", "gateway", 9094),
    ("canary", "gateway", 9093),
    ("canary", "gateway", 11092),
    ("canary", "gateway", 11094),
    ("outside", "gateway", 9092),
    ("outside", "gateway", HTTP),
    ("outside", "storage", HTTP),
    ("outside", "etcd", 2381),
]

NOT_NEEDED = [
    ("outside", "storage", GRPC),
    ("outside", "controller", GRPC),
    ("outside", "coordinator", GRPC),
    ("outside", "etcd", 2379),
    ("outside", "etcd", 2380),
    ("outside", "redis", 6379),
    ("outside", "gateway", 9095),
    ("outside", "gateway", 11092),
    ("gateway", "etcd", 2379),
    ("storage", "etcd", 2379),
    ("storage", "gateway", 9092),
    ("controller", "storage", GRPC),
    ("storage", "coordinator", GRPC),
    ("test", "storage", GRPC),
    ("canary", "controller", GRPC),
]


ALL = ("canary.enabled=true", "redis.enabled=true")

A_BROKER_MAY = [("storage", "coordinator", GRPC)]
"""What a storage node needs because it is a gateway too."""


@pytest.mark.parametrize(("source", "target", "port"), NEEDED)
def test_what_is_needed_gets_through(source: str, target: str, port: int) -> None:
    assert allows(render(*ALL), source, target, port)


@pytest.mark.parametrize(("source", "target", "port"), [*NEEDED, *A_BROKER_MAY])
def test_brokers_get_through_to_what_both_their_parts_need(source: str, target: str, port: int) -> None:
    assert allows(render("brokers", *ALL), source, target, port)


@pytest.mark.parametrize(("source", "target", "port"), NOT_NEEDED)
def test_what_is_not_needed_does_not(source: str, target: str, port: int) -> None:
    assert not allows(render(*ALL), source, target, port)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    # Brokers are storage nodes: among themselves all client ports are open.
    [each for each in NOT_NEEDED if each not in (*A_BROKER_MAY, ("storage", "gateway", 9092))],
)
def test_brokers_do_not_get_through_to_more(source: str, target: str, port: int) -> None:
    assert not allows(render("brokers", *ALL), source, target, port)


@pytest.mark.parametrize("values", MATRIX, ids=name_of)
def test_every_pod_has_a_policy_and_may_ask_for_names(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    for workload in rendered.workloads:
        found = policies(rendered, pod_labels(workload))
        if "networkPolicy.enabled=false" in values:
            assert found == []
            continue
        (spec,) = found
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        if component_of(workload) != "redis":  # which asks nobody
            assert {"protocol": "UDP", "port": 53} in spec["egress"][0]["ports"]


@pytest.mark.parametrize("values", MATRIX, ids=name_of)
def test_every_client_port_is_open(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    if "production" in values or "networkPolicy.clientsFrom[0].podSelector.matchLabels.a=b" in values:
        source = "test"  # a client that is always let in
    else:
        source = "outside"
    for name, port in container_ports(rendered.workload(rendered.front)).items():
        if source == "test" and not name.startswith("internal"):
            continue
        source_of_port = "canary" if name.startswith("direct") else source
        if name not in ("http", "grpc"):
            assert allows(rendered, source_of_port, "gateway", port), name


def test_only_named_clients_get_in_once_some_are_named() -> None:
    rendered = render("networkPolicy.clientsFrom[0].podSelector.matchLabels.app=friend")
    assert not allows(rendered, "outside", "gateway", 9092)
    assert allows(rendered, "test", "gateway", 9092)
    (spec,) = policies(rendered, pod_labels(rendered.workload("gateway")))
    assert has_peer(spec["ingress"][0]["from"], {"app": "friend"})


def test_an_etcd_elsewhere_and_a_collector_can_be_reached() -> None:
    rendered = render("external-etcd", "tracing.otlpEndpoint=http://collector:4318/")
    (controller,) = policies(rendered, pod_labels(rendered.workload("controller")))
    assert any(has_port(rule, 2379) and "to" not in rule for rule in controller["egress"])
    (gateway,) = policies(rendered, pod_labels(rendered.workload("gateway")))
    assert any(has_port(rule, 4318) for rule in gateway["egress"])
    assert any(has_port(rule, 6379) for rule in gateway["egress"])
