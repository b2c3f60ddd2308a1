"""Metrics, health, logs and traces of real processes: the supervisor, and services that run by themselves."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from raw_client import CREATE_TOPICS, RawConnection, Topic, request_frame, with_length
from running_services import LooseCluster, loose_cluster

from barnabas.records.record import encode_batch

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30
SERVICES = ("controller", "storage", "coordinator", "gateway")
TOGETHER = {"storage": "broker", "gateway": "broker", "coordinator": "broker"}
"""The process of `barnabas up` that a service is part of."""
KAFKA_METRICS = {
    "kafka_network_requestmetrics_totaltimems": "gateway",
    "kafka_network_requestmetrics_requestbytes": "gateway",
    "kafka_server_socketservermetrics_connection_count": "gateway",
    "kafka_server_brokertopicmetrics_messagesin": "storage",
    "kafka_server_brokertopicmetrics_bytesin": "storage",
    "kafka_server_brokertopicmetrics_bytesout": "storage",
    "kafka_log_log_logendoffset": "storage",
    "kafka_log_log_size": "storage",
    "kafka_server_replicamanager_leadercount": "storage",
    "kafka_controller_kafkacontroller_activecontrollercount": "controller",
    "kafka_coordinator_group_groupmetadatamanager_numgroups": "coordinator",
}
"""Families under the names that Kafka's JMX exporter gives them, and the service that owns each."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LooseCluster]:
    """Four services by themselves, with JSON logs, after some traffic."""
    with loose_cluster(tmp_path_factory.mktemp("alone"), log_format="json") as loose:
        loose.start()
        loose.wait_ready()
        make_traffic(loose.bootstrap, "observed")
        yield loose


def make_traffic(bootstrap: str, topic: str) -> None:
    """A hundred records in, and out again through a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_SECONDS) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    client = Consumer(settings)
    client.subscribe([topic])
    seen, deadline = 0, time.monotonic() + WAIT_SECONDS
    while seen < 100 and time.monotonic() < deadline:
        seen += len(client.consume(100, 0.2))
    client.close()
    assert seen == 100


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def get(url: str) -> tuple[int, str, str]:
    """(status, content type, body)."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_alone_has_the_three_endpoints(alone: LooseCluster, name: str) -> None:
    base = alone.services[name].http
    assert get(f"{base}/healthz")[::2] == (200, "ok\n")
    assert get(f"{base}/readyz")[::2] == (200, "ready\n")
    status, content_type, text = get(f"{base}/metrics")
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    found = families(text)
    for family in ("barnabas_event_loop_lag_seconds", "barnabas_gc_pause_seconds", "process_open_fds"):
        assert family in found
    assert {metric for metric, owner in KAFKA_METRICS.items() if owner == name} <= set(found)
    assert get(f"{base}/nothing-here")[0] == 404


def test_metrics_tell_the_traffic(alone: LooseCluster) -> None:
    def value(service: str, sample_name: str, **labels: str) -> float:
        _, text = alone.services[service].get("/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == sample_name and labels.items() <= sample.labels.items()
        )

    metric = "kafka_server_brokertopicmetrics_"
    assert value("storage", f"{metric}messagesin_total", topic="observed") == 100
    assert value("storage", f"{metric}bytesin_total", topic="observed") > 100
    assert value("storage", f"{metric}bytesout_total", topic="observed") > 100
    assert value("storage", "kafka_log_log_logendoffset", topic="observed", partition="0") == 100
    assert value("gateway", "kafka_network_requestmetrics_totaltimems_count", request="Produce") >= 1
    assert value("gateway", "kafka_network_requestmetrics_totaltimems_count", request="Fetch") >= 1
    assert value("gateway", "kafka_network_requestmetrics_requestbytes_total", request="Produce") > 100
    assert value("controller", "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value("coordinator", "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1


def test_the_supervisor_has_those_of_all_services(cluster: Any) -> None:
    make_traffic(cluster.bootstrap, "observed-together")
    status, _, text = get(f"{cluster.http}/metrics")
    assert status == 200
    found = families(text)
    assert set(KAFKA_METRICS) <= set(found)
    for family, owner in KAFKA_METRICS.items():
        instances = {sample.labels["instance"].split("-")[0] for sample in found[family].samples}
        assert instances == {TOGETHER.get(owner, owner)}
    assert get(f"{cluster.http}/healthz")[::2] == (200, "ok\n")
    assert get(f"{cluster.http}/readyz")[0] == 200


def test_the_supervisor_is_not_ready_while_a_service_is_away(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    cluster.kill("storage-1")
    wait_until(lambda: get(f"{cluster.http}/readyz")[0] == 503)
    assert "broker-1" in get(f"{cluster.http}/readyz")[2]
    assert get(f"{cluster.http}/healthz")[0] == 200
    assert get(f"{cluster.http}/metrics")[0] == 200, "the metrics of the others stay there"
    cluster.wait_ready()
    for name in ("broker-1", "storage-1", "gateway-1"):  # alerts ask for the services
        assert f'barnabas_service_restarts{{instance="{name}"' in cluster.metrics()


# --- logs


def test_every_line_is_a_json_object(alone: LooseCluster) -> None:
    for name, service in alone.services.items():
        for line in service.errors().splitlines():
            entry = json.loads(line)
            assert entry["service"] == name
            assert entry["level"] in ("debug", "info", "warning", "error")
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])
            assert entry["event"]
            assert entry["logger"].startswith("barnabas.")


def logged(alone: LooseCluster, **fields: object) -> list[dict[str, Any]]:
    lines = alone.services["gateway"].errors().splitlines()
    return [entry for entry in map(json.loads, lines) if fields.items() <= entry.items()]


def test_a_malformed_request_is_logged_with_its_identity(alone: LooseCluster) -> None:
    with RawConnection(alone.port) as connection:
        connection.send(with_length(request_frame(3, 9, {"topics": []}, correlation_id=4711)[:-3]))
        assert connection.is_closed()
    identity = {"client_id": "raw", "api": "Metadata", "version": 9, "correlation_id": 4711}
    wait_until(lambda: logged(alone, **identity))
    (entry,) = logged(alone, **identity)
    assert (entry["event"], entry["level"], entry["client"]) == ("connection closed", "warning", "127.0.0.1")
    assert entry["connection"] > 0
    assert "malformed" in entry["reason"]


def test_a_lost_controller_is_logged_and_leaves_a_gateway_ready(tmp_path: Path) -> None:
    with loose_cluster(tmp_path, log_format="json") as loose:
        loose.start("controller", "storage", "gateway")
        loose.wait_ready()
        with RawConnection(loose.port) as connection:
            assert connection.ask(3, 9, {"topics": []}).brokers
            loose.services["controller"].kill()
            topic = {"name": "never", "num_partitions": 1, "replication_factor": 1}
            answer = connection.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 2_000})
            assert answer.topics[0].error_code != 0
            assert answer.topics[0].error_message
            assert connection.ask(3, 9, {"topics": []}).brokers, "what it knows it still tells"
        address = loose.settings["controller"]["listen.address"]
        wait_until(lambda: logged(loose, event="lost the controller", address=address))
        assert loose.services["gateway"].get("/readyz") == (200, "ready\n")
        assert loose.services["gateway"].get("/healthz")[0] == 200


# --- traces


def spans_of(text: str) -> list[dict[str, Any]]:
    """The spans that the console exporter printed: JSON objects over many lines."""
    decoder, spans, position = json.JSONDecoder(), [], text.find("{")
    while position >= 0:
        span, end = decoder.raw_decode(text, position)
        spans.append(span)
        position = text.find("{", end)
    return spans


def test_a_trace_follows_a_produce_from_gateway_to_storage(tmp_path: Path) -> None:
    tracing = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    with loose_cluster(tmp_path) as loose:
        loose.start("controller", "storage", "gateway", environment=tracing)
        loose.wait_ready()
        with RawConnection(loose.port) as connection:
            topic = Topic(loose.port)
            (result,) = topic.produce(connection, {0: encode_batch([(1, None, b"traced", ())])})
            assert result.error_code == 0
            topic.fetch(connection, 12, {0: 0})
        for name in ("gateway", "storage", "controller"):
            assert loose.services[name].stop() == 0  # what is not exported yet is exported now
        outside = spans_of(loose.services["gateway"].output())
        inside = spans_of(loose.services["storage"].output())
        (produce,) = [span for span in outside if span["name"] == "gateway.produce"]
        (append,) = [span for span in inside if span["name"] == "storage.append"]
        assert append["context"]["trace_id"] == produce["context"]["trace_id"]
        assert append["parent_id"] == produce["context"]["span_id"]
        assert produce["parent_id"] is None
        assert produce["attributes"]["client_id"] == "raw"
        assert produce["resource"]["attributes"]["service.name"] == "barnabas-gateway"
        assert append["resource"]["attributes"]["service.name"] == "barnabas-storage"
        assert produce["start_time"] <= append["start_time"] <= append["end_time"] <= produce["end_time"]
        fetch = next(span for span in outside if span["name"] == "gateway.fetch")
        assert fetch["context"]["trace_id"] in {span["context"]["trace_id"] for span in inside}


def test_tracing_is_off_and_not_even_imported_without_configuration(tmp_path: Path) -> None:
    off = {"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}
    with loose_cluster(tmp_path) as loose:
        loose.start(environment=off, python_flags=("-X", "importtime"))
        loose.wait_ready()
        make_traffic(loose.bootstrap, "untraced")
        for service in loose.services.values():
            imported = service.errors()
            assert "barnabas.kernel.service" in imported
            assert "opentelemetry.sdk" not in imported
            assert service.output() == ""
