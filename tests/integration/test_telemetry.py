"""Client telemetry from end to end: subscriptions, real clients, a real OTLP collector.

kafka-client-metrics is in test_kafka_tools_cluster.py.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_tools import run_tool
from otlp_collector import OtlpCollector
from raw_client import API_VERSIONS, RawConnection
from running_cluster import Cluster

pytestmark = pytest.mark.integration

GET_SUBSCRIPTIONS, PUSH, INCREMENTAL_ALTER_CONFIGS = 71, 72, 44
CLIENT_METRICS = 16
UNKNOWN_SUBSCRIPTION_ID = 117
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as running:
        yield running


@pytest.fixture(scope="module")
def exporting(collector: OtlpCollector) -> Iterator[Cluster]:
    """A cluster whose gateway hands clients' metrics to the collector; each test subscribes to its own clients."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", collector.endpoint)
        running = Cluster().start()
    try:
        yield running
    finally:
        running.close()


def subscribe(cluster: Cluster, name: str, **settings: str) -> None:
    """What the tool does for `--alter`, without the two seconds that a JVM takes."""
    operations = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in settings.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": operations}
    with RawConnection(cluster.port) as connection:
        (result,) = connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses
    assert result.error_code == 0, result


def test_librdkafka_pushes(exporting: Cluster, collector: OtlpCollector) -> None:
    subscribe(exporting, "librdkafka", metrics="*", interval_ms="200", match="client_id=pushing")
    producer = Producer({"bootstrap.servers": exporting.bootstrap, "client.id": "pushing"})
    producer.produce("pushed", b"value")
    producer.flush(30)
    found = collector.wait_for(lambda each: each.attributes.get("client_id") == "pushing")
    assert "org.apache.kafka.producer.connection.creation.total" in found[0].metrics
    attributes = found[0].attributes
    assert attributes["client_id"] == "pushing"
    assert attributes["client_software_name"] == "confluent-kafka-python"
    assert attributes["client_source_address"] == "127.0.0.1"
    assert attributes["principal"] == "User:ANONYMOUS"
    assert len(attributes["client_instance_id"]) == 22
    assert 'kafka_server_client_metrics_plugin_export_count_total{instance="broker-1"' in exporting.metrics()


def test_the_java_client_pushes(exporting: Cluster, collector: OtlpCollector) -> None:
    subscribe(exporting, "java", metrics="org.apache.kafka.producer.", interval_ms="100",
              match="client_software_name=apache-kafka-java")  # fmt: skip
    run_tool(
        "producer-perf-test", "--topic", "pushed", "--num-records", "400", "--record-size", "10",
        "--throughput", "200", "--bootstrap-server", exporting.bootstrap,
    )  # fmt: skip
    found = collector.wait_for(
        lambda each: each.attributes.get("client_software_name") == "apache-kafka-java"
    )
    assert all(name.startswith("org.apache.kafka.producer.") for each in found for name in each.metrics)


def test_a_push_is_accepted_by_a_gateway_that_did_not_hand_out_the_subscription(exporting: Cluster) -> None:
    subscribe(exporting, "raw", metrics="*", interval_ms="60000", match="client_id=raw")
    with RawConnection(exporting.port) as connection:
        asked = connection.ask(GET_SUBSCRIPTIONS, 0, {"client_instance_id": None})
    push = {
        "client_instance_id": asked.client_instance_id.bytes,
        "subscription_id": asked.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"",
    }
    exporting.kill_and_wait("gateway-1")
    with RawConnection(exporting.port) as connection:
        assert connection.ask(PUSH, 0, push).error_code == 0
    with RawConnection(exporting.port) as connection:
        other = {**push, "client_instance_id": uuid.uuid4().bytes}
        assert connection.ask(PUSH, 0, other).error_code == UNKNOWN_SUBSCRIPTION_ID


def test_a_collector_that_is_away_holds_up_nobody(make_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1")
    cluster: Cluster = make_cluster()
    subscribe(cluster, "all", metrics="*", interval_ms="100")
    data = b"\x0a\x02\x12\x00"  # one resource with one empty scope
    with RawConnection(cluster.port) as connection:
        asked = connection.ask(GET_SUBSCRIPTIONS, 0, {"client_instance_id": None})
        for _ in range(5):
            started = time.monotonic()
            body = {
                "client_instance_id": asked.client_instance_id.bytes,
                "subscription_id": asked.subscription_id,
                "terminating": False,
                "compression_type": 0,
                "metrics": data,
            }
            assert connection.ask(PUSH, 0, body).error_code == 0
            assert time.monotonic() - started < 5
            time.sleep(0.11)  # the push interval, which the gateway holds clients to


@pytest.mark.parametrize("exports", [False, True])
def test_clients_are_told_of_telemetry_only_when_it_goes_somewhere(
    exports: bool, request: pytest.FixtureRequest
) -> None:
    running: Cluster = request.getfixturevalue("exporting" if exports else "cluster")
    with RawConnection(running.port) as connection:
        shown = {row.api_key for row in connection.ask(API_VERSIONS, 3, SOFTWARE).api_keys}
    assert ({GET_SUBSCRIPTIONS, PUSH} <= shown) == exports
