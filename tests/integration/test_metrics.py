"""What the metrics of a running cluster say of what real clients did, and whether docs/metrics.md is true."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import RawConnection
from running_cluster import Cluster, require_program
from scraped_metrics import Scrape, documented, scrape, scrape_until

from barnabas.records.record import encode_batch

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30
TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"
RECORDS = 500
VALUE = b"v" * 100
STAGES = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems", "responsesendtimems")


class Traffic(NamedTuple):
    """What was done in a cluster before it was scraped."""

    http: str
    topic: str
    group: str
    before: Scrape
    after: Scrape


@pytest.fixture(scope="module")
def separate() -> Iterator[Cluster]:
    """A cluster whose gateway and storage node are two processes, with streams between them."""
    with Cluster(flags=("--separate",)) as running:
        yield running


@pytest.fixture(scope="module")
def traffic(separate: Cluster) -> Iterator[Traffic]:
    """500 records in two partitions; a member that read all of them and committed 200 of partition 0."""
    cluster = separate
    topic, group = f"measured-{uuid.uuid4().hex[:8]}", f"readers-{uuid.uuid4().hex[:8]}"
    settings = {"bootstrap.servers": cluster.bootstrap}
    before = scrape(cluster.http)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_SECONDS)
    producer = Producer({**settings, "acks": "all", "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % 2)
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer(
        {**settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + WAIT_SECONDS
    while seen < RECORDS:
        assert time.monotonic() < deadline
        seen += len(consumer.consume(100, 0.2))
    consumer.commit(
        offsets=[TopicPartition(topic, 0, 200), TopicPartition(topic, 1, RECORDS // 2)], asynchronous=False
    )
    after = scrape_until(
        cluster.http, lambda page: len(page.series("kafka_consumergroup_lag", consumergroup=group)) == 2
    )
    yield Traffic(cluster.http, topic, group, before, after)
    consumer.close()


def test_the_page_and_the_cluster_have_the_same_metrics(traffic: Traffic) -> None:
    found = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in traffic.after.families.values()
        if not family.name.startswith(("process_", "python_"))
    }
    rows = documented()
    assert sorted(found.keys() - rows.keys()) == [], "not in docs/metrics.md"
    assert sorted(rows.keys() - found.keys()) == [], "in docs/metrics.md, but nowhere to be seen"
    for name, (kind, labels) in rows.items():
        assert found[name].type == kind, name
        for sample in found[name].samples:
            assert set(sample.labels) - {"service", "instance", "le"} == labels - {"service", "instance"}, (
                name
            )


def test_names_and_format_are_those_of_prometheus(traffic: Traffic) -> None:
    checked = subprocess.run(
        [require_program("promtool"), "check", "metrics"],
        input=traffic.after.text,
        capture_output=True,
        text=True,
        check=False,
    )
    # 3 is "only a matter of style", and Kafka's names are Kafka's: ours are to be in style as well.
    assert checked.returncode in (0, 3), checked.stderr
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert [line for line in complaints if line.startswith("barnabas_")] == []


def test_records_and_bytes_of_a_topic(traffic: Traffic) -> None:
    page, topic = traffic.after, traffic.topic
    assert page.value(f"{TOPIC_METRICS}messagesin_total", topic=topic) == RECORDS
    size = page.value(f"{TOPIC_METRICS}bytesin_total", topic=topic)
    assert RECORDS * len(VALUE) < size < 2 * RECORDS * len(VALUE)
    assert page.value(f"{TOPIC_METRICS}bytesout_total", topic=topic) >= size
    assert page.value("kafka_log_log_size", topic=topic) == size
    assert page.value("kafka_log_log_logendoffset", topic=topic, partition="0") == RECORDS / 2
    assert page.value("kafka_log_log_logstartoffset", topic=topic) == 0
    assert page.value("kafka_log_log_numlogsegments", topic=topic) == 2
    assert page.value(f"{TOPIC_METRICS}totalproducerequests_total", topic=topic) >= 2
    assert page.value(f"{TOPIC_METRICS}totalfetchrequests_total", topic=topic) >= 2
    assert page.value(f"{TOPIC_METRICS}failedproducerequests_total", topic=topic) == 0
    assert page.value(f"{TOPIC_METRICS}failedfetchrequests_total", topic=topic) == 0


def test_lag_of_a_group(traffic: Traffic) -> None:
    page, labels = traffic.after, {"consumergroup": traffic.group, "topic": traffic.topic}
    assert page.value("kafka_consumergroup_current_offset", partition="0", **labels) == 200
    assert page.value("kafka_consumergroup_lag", partition="0", **labels) == RECORDS / 2 - 200
    assert page.value("kafka_consumergroup_lag", partition="1", **labels) == 0
    assert page.value("kafka_consumergroup_lag_sum", **labels) == RECORDS / 2 - 200
    assert page.value("kafka_consumergroup_members", consumergroup=traffic.group) == 1
    first = page.value("barnabas_consumergroup_lag_seconds", partition="0", **labels)
    assert 0 < first < WAIT_SECONDS
    assert page.value("barnabas_consumergroup_lag_seconds", partition="1", **labels) == 0
    later = scrape_until(
        traffic.http,
        lambda now: now.value("barnabas_consumergroup_lag_seconds", partition="0", **labels) > first + 0.5,
    )
    assert later.value("kafka_consumergroup_lag", partition="0", **labels) == RECORDS / 2 - 200
    assert page.value("barnabas_coordinator_lag_left_out_partitions") == 0


def test_requests_and_the_stages_of_their_time(traffic: Traffic) -> None:
    page = traffic.after
    for request in ("Produce", "Fetch", "OffsetCommit", "CreateTopics"):
        count = page.value(f"{REQUESTS}requests_total", request=request)
        assert count >= 1
        total = page.value(f"{REQUESTS}totaltimems_sum", request=request)
        parts = [page.value(f"{REQUESTS}{stage}_sum", request=request) for stage in STAGES]
        assert sum(parts) == pytest.approx(total, rel=0.01, abs=0.1)
        for stage in ("totaltimems", "throttletimems", *STAGES):
            assert page.value(f"{REQUESTS}{stage}_count", request=request) == count
        assert page.value(f"{REQUESTS}remotetimems_sum", request=request) > 0
        assert page.value(f"{REQUESTS}localtimems_sum", request=request) > 0
        assert page.value(f"{REQUESTS}throttletimems_sum", request=request) == 0


def test_streams_carry_what_clients_send(traffic: Traffic) -> None:
    page = traffic.after
    sent = page.value("barnabas_stream_bytes_total", end="client", stream="append", direction="sent")
    assert sent > RECORDS * len(VALUE)
    for end in ("client", "server"):
        for direction in ("sent", "received"):
            labels = {"end": end, "stream": "append", "direction": direction}
            items = page.value("barnabas_stream_message_items_sum", **labels)
            assert items >= page.value("barnabas_stream_message_items_count", **labels) > 0


def test_a_deleted_topic_is_gone(cluster: Any) -> None:
    topic = f"gone-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_SECONDS)
    scrape_until(cluster.http, lambda page: f'topic="{topic}"' in page.text)
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)
    scrape_until(cluster.http, lambda page: topic not in page.text)


def test_errors_and_whose_fault_they_are(cluster: Any) -> None:
    def counts(page: Scrape) -> tuple[float, float]:
        error = {"request": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
        seen = sum(value for _, value in page.series(f"{REQUESTS}errors_total", **error))
        failed = page.series("barnabas_gateway_failed_requests_total", request="Produce")
        return seen, sum(value for _, value in failed)

    errors, failed = counts(scrape(cluster.http))
    records = encode_batch([(1, None, b"lost", ())])
    body = {
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [
            {"name": "no-such-topic", "partition_data": [{"index": 0, "records": records}]},
        ],
    }
    with RawConnection(cluster.port) as connection:
        answer = connection.ask(0, 9, body)
    assert answer.responses[0].partition_responses[0].error_code != 0
    assert counts(scrape(cluster.http)) == (errors + 1, failed), "the client's own fault"


def test_connections_come_and_go(cluster: Any) -> None:
    prefix = "kafka_server_socketservermetrics_connection_"
    before = scrape(cluster.http)
    with RawConnection(cluster.port) as connection:
        connection.ask(18, 0, {})
        during = scrape(cluster.http)
        created = during.value(f"{prefix}creation_total", listener="PLAINTEXT")
        assert created > before.value(f"{prefix}creation_total", listener="PLAINTEXT")
        assert during.value(f"{prefix}count", listener="PLAINTEXT") >= 1
    closed = before.value(f"{prefix}close_total", listener="PLAINTEXT")
    scrape_until(cluster.http, lambda page: page.value(f"{prefix}close_total", listener="PLAINTEXT") > closed)


def test_controller_and_elections(make_cluster: Any) -> None:
    cluster = make_cluster(flags=("--separate",))
    prefix = "kafka_controller_kafkacontroller_"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("led", 3, 1)])["led"].result(WAIT_SECONDS)
    page = scrape(cluster.http)
    assert page.value(f"{prefix}activecontrollercount") == 1
    assert page.value(f"{prefix}globalpartitioncount") >= 3
    assert page.value("barnabas_controller_registered_gateways") == 1
    assert page.value("kafka_server_replicamanager_leadercount") >= 3
    cluster.kill("storage-1")
    cluster.wait_ready()
    again = scrape_until(cluster.http, lambda page: page.value(f"{prefix}offlinepartitionscount") == 0)
    assert again.value("barnabas_controller_underreplicated_partitions") == 0
    assert again.value("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert again.value("barnabas_stream_breaks_total", service="coordinator") >= 0
