"""The chart on a real Kubernetes: installed, used from outside, disturbed, upgraded, widened, removed and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kcat_client import kcat
from kubernetes_cluster import EXAMPLES, NODE_PORT, Kubernetes, Release
from running_load import Load, read_all

BOOTSTRAP = ",".join(f"localhost:{NODE_PORT + position}" for position in range(3))
WORKLOADS = {"gateway": 2, "storage": 3, "controller": 2, "coordinator": 2, "etcd": 3, "canary": 1}


def test_every_pod_is_ready_and_none_began_anew(release: Release) -> None:
    assert {component: len(release.pods(component)) for component in WORKLOADS} == WORKLOADS
    assert release.restarts() == {}


def test_helm_test_passes(release: Release) -> None:
    assert "read what was sent, through" in release.test()


def test_clients_outside_come_in_by_one_host_and_a_port_for_each_node(release: Release) -> None:
    kcat("-b", f"localhost:{NODE_PORT}", "-P", "-t", "outside", "-K:", stdin="k1:hello\nk2:world\n")
    found = kcat("-b", f"localhost:{NODE_PORT + 1}", "-C", "-t", "outside", "-o", "beginning", "-e", "-K:")
    assert sorted(found.splitlines()) == ["k1:hello", "k2:world"]
    brokers = AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics(timeout=30).brokers.values()
    assert {(broker.id, broker.host, broker.port) for broker in brokers} == {
        (node, "localhost", NODE_PORT + node) for node in range(3)
    }


@pytest.mark.parametrize("component", WORKLOADS)
def test_a_pod_that_is_deleted_costs_no_record(release: Release, component: str) -> None:
    with Load(BOOTSTRAP) as load:
        release.delete_pod(component)
        load.wait_progress()
    assert release.restarts() == {}


@pytest.mark.parametrize("component", WORKLOADS)
def test_a_pod_that_is_killed_costs_no_record(release: Release, component: str) -> None:
    with Load(BOOTSTRAP) as load:
        release.delete_pod(component, at_once=True)
        load.wait_progress()
    assert release.restarts() == {}


def test_an_upgrade_replaces_every_pod_and_stops_no_client(release: Release) -> None:
    before = {pod["metadata"]["uid"] for pod in release.pods()}
    with Load(BOOTSTRAP) as load:
        release.install("podAnnotations.upgraded=once")
        load.wait_progress()
    assert not before & {pod["metadata"]["uid"] for pod in release.pods()}
    assert release.restarts() == {}


def test_all_comes_back_with_its_volumes(release: Release) -> None:
    with Load(BOOTSTRAP) as load:
        load.wait_progress()
    before = read_all(BOOTSTRAP, load.topic)
    release.remove()
    release.install()
    assert read_all(BOOTSTRAP, load.topic) == before


def test_a_storage_node_more_is_one_port_more(release: Release) -> None:
    with Load(BOOTSTRAP) as load:
        release.install("storage.replicas=4")
        load.wait_progress()
    brokers = AdminClient({"bootstrap.servers": BOOTSTRAP}).list_topics(timeout=30).brokers.values()
    assert {(broker.id, broker.port) for broker in brokers} == {(node, NODE_PORT + node) for node in range(4)}
    with Load(f"localhost:{NODE_PORT + 3}") as load:
        load.wait_progress()


def test_the_least_cluster_passes_helm_test(kubernetes: Kubernetes) -> None:
    least = Release(kubernetes, "least", EXAMPLES / "minimal.yaml")
    least.install("gateway.resources.requests.cpu=50m", "storage.resources.requests.cpu=50m")
    assert "read what was sent, through" in least.test()
    assert least.restarts() == {}
    least.remove()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_server_takes_every_example(kubernetes: Kubernetes, example: Path) -> None:
    """What schemas do not say: names, ranges, fields that go together, what admission thinks of it."""
    arguments = ["template", "tried", str(EXAMPLES.parent), "--values", str(example), "--no-hooks"]
    # Of the Prometheus operator, which is not there; and a range that the release takes.
    arguments += ["--set", "monitoring.serviceMonitor.enabled=false,monitoring.prometheusRule.enabled=false"]
    arguments += ["--set", "gateway.external.nodePort=31092"]
    manifests = kubernetes.helm(*arguments)
    applied = kubernetes.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=manifests)
    assert applied.count("(server dry run)") > 15
