"""Traces from end to end, in the output of a real OpenTelemetry Collector with the project's configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from otel_collector import OtelCollector, otel_collector
from running_services import LooseCluster, loose_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]  # the collector may have to be built first

WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtelCollector]:
    with otel_collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture(scope="module")
def traced(collector: OtelCollector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LooseCluster]:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with loose_cluster(tmp_path_factory.mktemp("traced")) as loose:
        loose.start(environment=environment)
        loose.wait_ready()
        admin = AdminClient({"bootstrap.servers": loose.bootstrap})
        admin.create_topics([NewTopic("traced", 1, 1)])["traced"].result(WAIT_SECONDS)
        yield loose


def test_a_produce_is_one_trace_from_gateway_to_storage(
    traced: LooseCluster, collector: OtelCollector
) -> None:
    producer = Producer({"bootstrap.servers": traced.bootstrap, "client.id": "traced"})
    producer.produce("traced", "one")
    assert producer.flush(WAIT_SECONDS) == 0
    outside = collector.wait_for_span("gateway.produce")
    assert outside.service == "barnabas-gateway"
    assert outside.parent == ""
    inside = collector.wait_for_span("storage.append", parent=outside)
    assert inside.service == "barnabas-storage"
    assert "-> client_id: Str(traced)" in collector.output()


def test_an_offset_commit_is_one_trace_through_the_coordinator(
    traced: LooseCluster, collector: OtelCollector
) -> None:
    consumer = Consumer({"bootstrap.servers": traced.bootstrap, "group.id": "traced"})
    consumer.commit(offsets=[TopicPartition("traced", 0, 1)], asynchronous=False)
    consumer.close()
    outside = collector.wait_for_span("gateway.offset_commit")
    assert outside.service == "barnabas-gateway"
    between = collector.wait_for_span("coordinator.offset_commit", parent=outside)
    assert between.service == "barnabas-coordinator"
    inside = collector.wait_for_span("storage.append", parent=between)
    assert inside.service == "barnabas-storage"
