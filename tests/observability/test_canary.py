"""The canary beside a running cluster: what it counts while all is well, and while a gateway is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from observed_cluster import ObservedCluster, observed_cluster
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.integration

WAIT_SECONDS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedCluster]:
    with observed_cluster(tmp_path_factory.mktemp("canary")) as cluster:
        cluster.start(*(name for name in cluster.http if name != "canary-1"))
        yield cluster


@pytest.fixture
def observed(cluster: ObservedCluster) -> Iterator[ObservedCluster]:
    """The cluster with a canary of the test's own, whose counts begin at 0."""
    cluster.start("canary-1")
    yield cluster
    if cluster.instances["canary-1"].process.poll() is None:
        cluster.instances["canary-1"].kill()


def value(cluster: ObservedCluster, name: str, **labels: str) -> float:
    """The sum of the canary's samples of this name with these labels."""
    _, text = cluster.instances["canary-1"].get("/metrics")
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"barnabas_canary_{name}" and labels.items() <= sample.labels.items()
    )


def wait_until(holds: Callable[[], bool], cluster: ObservedCluster) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, cluster.instances["canary-1"].errors()
        time.sleep(0.05)


def assert_nothing_lost(cluster: ObservedCluster) -> None:
    for name in ("lost_records_total", "duplicate_records_total", "out_of_order_records_total"):
        assert value(cluster, name) == 0, name


def test_every_gateway_is_produced_to_and_read_from(observed: ObservedCluster) -> None:
    # The topic may have been made before the second storage node was there.
    wait_until(lambda: value(observed, "partitions") == 2, observed)
    for gateway in observed.gateways:
        for operation in ("produce", "fetch"):
            labels = {"gateway": gateway, "operation": operation}
            wait_until(lambda labels=labels: value(observed, "attempts_total", **labels) >= 10, observed)
        assert value(observed, "end_to_end_seconds_count", gateway=gateway) >= 10
        assert value(observed, "produce_seconds_count", gateway=gateway) >= 10
        wait_until(
            lambda gateway=gateway: 0 < value(observed, "freshness_seconds", gateway=gateway) < 5, observed
        )
    assert value(observed, "gateways") == len(observed.gateways)
    assert value(observed, "acknowledged_records_total") >= 20
    assert value(observed, "failures_total") == 0
    assert_nothing_lost(observed)


def test_a_gateway_that_is_away_fails_and_loses_nothing(observed: ObservedCluster) -> None:
    away, other = observed.gateways
    before = value(observed, "failures_total", gateway=other)
    observed.instances["gateway-1"].kill()
    for operation in ("produce", "fetch"):
        labels = {"gateway": away, "operation": operation}
        wait_until(lambda labels=labels: value(observed, "failures_total", **labels) >= 5, observed)
    # Long enough for records to be called lost if the other gateway did not give them back.
    acknowledged = value(observed, "acknowledged_records_total")
    wait_until(lambda: value(observed, "acknowledged_records_total") > acknowledged + 50, observed)
    assert value(observed, "freshness_seconds", gateway=away) > 2
    assert value(observed, "failures_total", gateway=other) == before
    assert_nothing_lost(observed)
    observed.start("gateway-1")
    wait_until(lambda: value(observed, "freshness_seconds", gateway=away) < 1, observed)
    labels = {"gateway": away, "operation": "produce"}
    # What was sent while it was away may still time out; then nothing fails any more.
    attempts = value(observed, "attempts_total", **labels)
    wait_until(lambda: value(observed, "attempts_total", **labels) > attempts + 40, observed)
    failed = value(observed, "failures_total", **labels)
    wait_until(lambda: value(observed, "attempts_total", **labels) > attempts + 60, observed)
    assert value(observed, "failures_total", **labels) == failed
    assert_nothing_lost(observed)


def test_a_topic_that_somebody_deleted_is_made_again(observed: ObservedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": observed.gateways[1]})
    canary = observed.instances["canary-1"]
    begun = canary.errors().count("beginning again")
    admin.delete_topics(["barnabas-canary"])["barnabas-canary"].result(WAIT_SECONDS)
    wait_until(lambda: canary.errors().count("beginning again") > begun, observed)
    for gateway in observed.gateways:
        done = value(observed, "end_to_end_seconds_count", gateway=gateway)
        wait_until(
            lambda gateway=gateway, done=done: (
                value(observed, "end_to_end_seconds_count", gateway=gateway) > done + 5
            ),
            observed,
        )
    assert value(observed, "lost_records_total") == 0


def test_it_stops_when_told_to(observed: ObservedCluster) -> None:
    canary = observed.instances["canary-1"]
    assert canary.stop() == 0
    assert "Traceback" not in canary.errors()
