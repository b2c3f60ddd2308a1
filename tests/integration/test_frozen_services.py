"""A service that is frozen (SIGSTOP) under load: all are answered in time, nothing is lost, and it finds its way back.

A killed service is easy: the kernel ends its connections. Those of a frozen one stay open, and nothing ever comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from command_line import CommandLine
from confluent_kafka import Consumer, KafkaError, KafkaException
from raw_client import FETCH, METADATA, PRODUCE, RawConnection, Topic, connections
from scraped_metrics import Scrape
from test_kill_and_restart import SteadyProducer, assert_exactly_once, make_topic, read_all

from barnabas.cli.kafka.administration import FIRST_SECONDS_MAX, LOOK_SECONDS_MAX
from barnabas.kernel.errors import ErrorCode
from barnabas.records.record import encode_batch

pytestmark = [pytest.mark.integration, pytest.mark.alone]

WAIT_SECONDS = 60.0
FROZEN_SECONDS = 4.0
"""Longer than anybody waits for a silent peer (3 s), so that the others have to act."""

IN_GATEWAY = "barnabas_stream_waiting_requests"
IN_STORAGE = "kafka_server_delayedoperationpurgatory_purgatorysize"

RETRIABLE = (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower)
PATIENCE_SECONDS = 1.0
"""For a machine that is busy with other things; added to what the product promises."""


def batch(value: bytes) -> bytes:
    return encode_batch([(int(time.time() * 1000), None, value, ())])


def leaders(connection: RawConnection, name: str) -> dict[int, int]:
    body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (topic,) = connection.ask(METADATA, 8, body).topics
    return {partition.partition_index: partition.leader_id for partition in topic.partitions}


@contextmanager
def taking_at_most(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    taken = time.monotonic() - started
    assert taken < seconds + PATIENCE_SECONDS, f"it took {taken:.2f} s"


def until(holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> float:
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < seconds, f"not after {seconds} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - started


def test_a_frozen_leader_holds_up_nobody_but_its_own_partitions(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=3)
    topic = Topic(cluster.port, partitions=3)
    with RawConnection(cluster.port) as connection:
        led = leaders(connection, topic.name)
        assert len(set(led.values())) == 3
        frozen = next(partition for partition, node in led.items() if node == 2)
        healthy = sorted(set(led) - {frozen})
        for partition in led:
            (produced,) = topic.produce(connection, {partition: batch(b"before")})
            assert produced.error_code == 0
        session = connection.ask(FETCH, 11, topic.fetch_body(dict.fromkeys(led, 1), session_epoch=0))
        cluster.pause("storage-2")
        frozen_at = time.monotonic()
        body = topic.produce_body({frozen: batch(b"nobody takes it")}) | {"timeout": 1_000}
        with taking_at_most(2.0):
            answer = connection.ask(PRODUCE, 9, body)
        assert answer.responses[0].partition_responses[0].error_code in RETRIABLE
        with taking_at_most(1.5):
            fetched = topic.fetch(connection, 11, dict.fromkeys(led, 0), max_wait=500)
        assert [bool(fetched[partition].records) for partition in healthy] == [True, True]
        assert fetched[frozen].error_code in (0, *RETRIABLE)
        # An incremental session hears of the others, and asks for the frozen one again by itself.
        topic.produce(connection, dict.fromkeys(healthy, batch(b"news")))
        following = topic.fetch_body({}, session_id=session.session_id, session_epoch=1, max_wait=500)
        with taking_at_most(1.5):
            news = topic.partitions_of(connection.ask(FETCH, 11, following))
        assert [bool(news[partition].records) for partition in healthy] == [True, True]
        until(lambda: leaders(connection, topic.name)[frozen] == -1, "the frozen node is fenced", 10.0)
        assert time.monotonic() - frozen_at < 12.0
        cluster.resume("storage-2")
        until(lambda: leaders(connection, topic.name)[frozen] == 2, "the node leads again")
        until(
            lambda: topic.produce(connection, {frozen: batch(b"after")})[0].error_code == 0,
            "the partition takes records again",
        )
        following["session_epoch"] = 2
        until(lambda: bool(topic.fetch(connection, 11, {frozen: 1})[frozen].records), "it can be read")
        again = topic.partitions_of(connection.ask(FETCH, 11, following))
        assert again[frozen].records, "the session has not forgotten the partition"


@pytest.mark.parametrize(
    ("flags", "services"),
    [
        ((), ("broker-2", "controller", "broker-1")),
        (("--separate",), ("storage-2", "coordinator-1", "controller", "gateway-1")),
    ],
    ids=["broker", "separate"],
)
def test_clients_go_on_after_any_service_was_frozen(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], services: tuple[str, ...]
) -> None:
    cluster = make_cluster(nodes=3, flags=flags)
    topic = make_topic(cluster, "frozen")
    errors: list[KafkaError] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "frozen",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "error_cb": errors.append,
        }
    )
    consumer.subscribe([topic])
    seen: list[int] = []

    def read_more(count: int) -> None:
        target, deadline = len(seen) + count, time.monotonic() + WAIT_SECONDS
        while len(seen) < target:
            assert time.monotonic() < deadline, f"stuck at {len(seen)} of {target}: {errors}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(int(message.value()))

    with SteadyProducer(cluster.bootstrap, topic) as producer:
        for service in services:
            read_more(300)
            cluster.pause(service)
            frozen_until = time.monotonic() + FROZEN_SECONDS
            while time.monotonic() < frozen_until:
                consumer.poll(0.1)
            cluster.resume(service)
            resumed = time.monotonic()
            producer.wait_for_more(500)
            read_more(300)
            until(lambda: commits(consumer), "the group commits")
            assert time.monotonic() - resumed < 20, f"{service}: clients took too long to recover"
    assert [error for error in errors if error.fatal()] == []
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))
    consumer.close()


def commits(consumer: Consumer) -> bool:
    """Whether a commit succeeds; it may have to be tried again, but the consumer must not be done for."""
    failures: list[KafkaError] = []
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        failures.append(error.args[0])
    assert not any(error.fatal() for error in failures), failures
    return not failures


@pytest.mark.parametrize("flags", [(), ("--separate",)], ids=["broker", "separate"])
def test_connections_that_close_take_their_fetches_with_them(
    make_cluster: Callable[..., Any], flags: tuple[str, ...]
) -> None:
    cluster = make_cluster(flags=flags)
    topic = Topic(cluster.port)
    gauges = [(IN_STORAGE, {"delayedOperation": "Fetch"})]
    if flags:  # in a broker no stream is between them
        gauges.append((IN_GATEWAY, {"stream": "fetch"}))

    def waiting() -> list[float]:
        scrape = Scrape(cluster.metrics())
        return [scrape.value(sample, **labels) for sample, labels in gauges]

    with connections(cluster.port, 500) as made:
        for connection in made:
            connection.post(FETCH, 11, topic.fetch_body({0: 0}, max_wait=600_000))
        until(lambda: min(waiting()) >= 500, "all wait")
    until(lambda: max(waiting()) == 0, "all are forgotten", 10.0)


@pytest.mark.parametrize("bootstrap_node", [1, 2])
def test_the_doctor_names_who_does_not_answer_and_tells_the_rest(
    make_cluster: Callable[..., Any], bootstrap_node: int
) -> None:
    """It may be asked by way of the frozen node, too, as long as another address is known."""
    cluster = make_cluster(nodes=3)
    addresses = [f"127.0.0.1:{cluster.port + at}" for at in (bootstrap_node - 1, 2)]
    run = CommandLine(",".join(addresses))
    make_topic(cluster, "kept")
    run("configs", "--alter", "--broker", "3", "--add-config", "leader.replication.throttled.rate=90000000")
    cluster.pause("broker-2")
    with taking_at_most(2 * LOOK_SECONDS_MAX):
        findings = {each["check"]: each for each in run.findings(status=1)}
    assert findings.keys() & {"node-silent", "node-fenced"}, "fenced where this machine is slow"
    assert all(
        findings[check]["subjects"] == ["2"] for check in findings.keys() & {"node-silent", "node-fenced"}
    )
    assert len(findings["throttles-left"]["subjects"]) == 1
    with taking_at_most(2 * LOOK_SECONDS_MAX):
        rows = {row["id"]: row for row in run("nodes", "list", "--output", "json").data}
    assert [rows[node]["room"] is None for node in (1, 2, 3)] == [False, True, False]


def test_the_doctor_does_not_wait_long_where_nobody_answers(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=1)
    cluster.pause("broker-1")
    with taking_at_most(FIRST_SECONDS_MAX + LOOK_SECONDS_MAX):
        said = CommandLine(cluster.bootstrap).refused("doctor")
    assert "takes connections and does not answer" in said
