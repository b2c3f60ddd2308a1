"""Injected faults, seen by librdkafka: what is lost, late or refused, and that nothing is lost or doubled for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from raw_client import FETCH, METADATA, PRODUCE, RawConnection
from raw_client import Topic as RawTopic

from barnabas.records.record import encode_batch
from barnabas.testing import Cluster, ClusterFailed, TimedOut, Topic

pytestmark = pytest.mark.integration

NOT_LEADER = 6


def producer(cluster: Cluster, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "under-test",
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **settings,
        }
    )


def send(client: Producer, topic: str, numbers: range) -> list[Any]:
    """Send numbers one request each; returns the errors."""
    errors: list[Any] = []
    for number in numbers:
        client.produce(
            topic, str(number), on_delivery=lambda error, _: errors.append(error) if error else None
        )
        client.poll(0.005)
    assert client.flush(60) == 0
    return errors


def numbers_in(topic: Topic, count: int) -> list[int]:
    return [int(record.text) for record in topic.wait_for_records(count, timeout=30)]


def test_an_error_as_often_as_asked_for_and_only_for_its_topic(
    barnabas_cluster: Cluster, barnabas_topic: Topic
) -> None:
    with (
        barnabas_cluster.temporary_topic() as other,
        barnabas_cluster.fault(
            "Produce", topic=barnabas_topic, error="NOT_LEADER_OR_FOLLOWER", times=2
        ) as fault,
    ):
        client = producer(barnabas_cluster)
        assert send(client, other, range(3)) == []
        assert fault.hits == 0
        assert send(client, barnabas_topic, range(3)) == []
        assert fault.hits == 2
        assert numbers_in(other, 3) == [0, 1, 2]
    assert fault.hits == 2
    assert numbers_in(barnabas_topic, 3) == [0, 1, 2]


@pytest.mark.parametrize("after", [False, True])
def test_an_idempotent_producer_over_lost_requests_and_answers(
    barnabas_cluster: Cluster, barnabas_topic: Topic, after: bool
) -> None:
    with barnabas_cluster.fault(
        "Produce", topic=barnabas_topic, drop=True, after=after, probability=0.2, seed=7
    ) as fault:
        assert send(producer(barnabas_cluster), barnabas_topic, range(40)) == []
        assert fault.hits >= 2
    assert numbers_in(barnabas_topic, 40) == list(range(40))


def test_without_idempotence_a_lost_answer_doubles_the_record(
    barnabas_cluster: Cluster, barnabas_topic: Topic
) -> None:
    with barnabas_cluster.fault("Produce", topic=barnabas_topic, drop=True, after=True, times=1) as fault:
        assert (
            send(producer(barnabas_cluster, **{"enable.idempotence": False}), barnabas_topic, range(1)) == []
        )
        assert fault.hits == 1
    assert numbers_in(barnabas_topic, 2) == [0, 0]


def test_a_fatal_error_reaches_the_producer(barnabas_cluster: Cluster, barnabas_topic: Topic) -> None:
    with barnabas_cluster.fault("Produce", topic=barnabas_topic, error="TOPIC_AUTHORIZATION_FAILED", times=1):
        (error,) = send(producer(barnabas_cluster, **{"enable.idempotence": False}), barnabas_topic, range(1))
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert barnabas_topic.records() == []


@pytest.fixture
def consumer(barnabas_cluster: Cluster, barnabas_topic: Topic) -> Iterator[Consumer]:
    client = Consumer(
        {
            "bootstrap.servers": barnabas_cluster.bootstrap_servers,
            "client.id": "under-test",
            "group.id": f"group-{barnabas_topic}",
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    client.subscribe([barnabas_topic])
    yield client
    client.close()


def consume(client: Consumer, count: int) -> list[int]:
    numbers: list[int] = []
    deadline = time.monotonic() + 60
    while len(numbers) < count:
        assert time.monotonic() < deadline, f"{numbers} only"
        message = client.poll(0.1)
        if message is not None and message.error() is None:
            numbers.append(int(message.value() or b""))
    return numbers


@pytest.mark.parametrize(
    "what", [{"error": "NOT_LEADER_OR_FOLLOWER"}, {"drop": True}, {"error": "UNKNOWN_SERVER_ERROR"}]
)
def test_a_consumer_over_fetches_that_fail(
    barnabas_cluster: Cluster, barnabas_topic: Topic, consumer: Consumer, what: dict[str, Any]
) -> None:
    barnabas_topic.produce([str(number) for number in range(20)])
    with barnabas_cluster.fault("Fetch", topic=barnabas_topic, times=3, **what) as fault:
        assert consume(consumer, 20) == list(range(20))
        assert fault.hits == 3
    consumer.commit(asynchronous=False)
    assert barnabas_cluster.wait_for_group(f"group-{barnabas_topic}", topic=barnabas_topic, members=1) == {
        (barnabas_topic, 0): 0
    }


def test_a_commit_that_fails_shows_in_the_lag(
    barnabas_cluster: Cluster, barnabas_topic: Topic, consumer: Consumer
) -> None:
    group = f"group-{barnabas_topic}"
    barnabas_topic.produce(["0", "1"])
    assert consume(consumer, 2) == [0, 1]
    with (
        barnabas_cluster.fault("OffsetCommit", group=group, error="GROUP_AUTHORIZATION_FAILED"),
        pytest.raises(KafkaException),
    ):
        consumer.commit(asynchronous=False)
    assert barnabas_cluster.group_lag(group, barnabas_topic) == {(barnabas_topic, 0): 2}
    with pytest.raises(TimedOut, match="lag"):
        barnabas_cluster.wait_for_group(group, topic=barnabas_topic, timeout=0.2)
    consumer.commit(asynchronous=False)
    barnabas_cluster.wait_for_group(group)


def test_a_delay_and_its_early_end(barnabas_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": barnabas_cluster.bootstrap_servers, "client.id": "slow-one"})
    admin.list_topics(timeout=10)
    with barnabas_cluster.fault("Metadata", client_id="slow-*", delay=0.3, times=1) as fault:
        started = time.monotonic()
        admin.list_topics(timeout=10)
        assert time.monotonic() - started >= 0.3
        assert fault.hits == 1
    with RawConnection(barnabas_cluster.port) as connection:
        with barnabas_cluster.fault("Metadata", client_id="raw", delay=600) as fault:
            number = connection.post(METADATA, 9, {"topics": []})
            fault.wait_for_hits(1)
        assert connection.answer(METADATA, 9, number).brokers


def test_hang_holds_the_connection_until_its_end(barnabas_cluster: Cluster) -> None:
    with RawConnection(barnabas_cluster.port) as connection:
        with barnabas_cluster.fault("Metadata", client_id="raw", hang=True) as fault:
            connection.post(METADATA, 9, {"topics": []})
            fault.wait_for_hits(1)
            assert not connection.is_closed(seconds=0.2)
        assert connection.is_closed()


def test_what_is_pipelined_behind_a_lost_request_is_lost_with_it(barnabas_cluster: Cluster) -> None:
    topic = RawTopic(barnabas_cluster.port)
    with RawConnection(barnabas_cluster.port) as connection:
        with barnabas_cluster.fault("Produce", topic=topic.name, delay=0.2, drop=True, times=1):
            for number in range(5):
                batch = encode_batch([(1, b"k", str(number).encode(), ())])
                connection.post(PRODUCE, 9, topic.produce_body({0: batch}))
            assert connection.is_closed()
        assert barnabas_cluster.records(topic.name) == []


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_incremental_fetch_fails_for_the_partitions_of_its_session(
    barnabas_cluster: Cluster, version: int
) -> None:
    topic = RawTopic(barnabas_cluster.port, partitions=2)
    with RawConnection(barnabas_cluster.port) as connection:
        session = {"session_id": 0, "session_epoch": 0}
        opened = connection.ask(FETCH, version, topic.fetch_body({0: 0, 1: 0}, **session))
        with barnabas_cluster.fault("Fetch", topic=topic.name, error=NOT_LEADER, times=1) as fault:
            if version >= 7:
                session = {"session_id": opened.session_id, "session_epoch": 1}
                body = topic.fetch_body({}, **session)
            else:
                body = topic.fetch_body({0: 0, 1: 0})
            answer = connection.ask(FETCH, version, body)
            assert fault.hits == 1
        codes = {index: part.error_code for index, part in topic.partitions_of(answer).items()}
        assert codes == {0: NOT_LEADER, 1: NOT_LEADER}
        if version >= 7:
            assert (answer.error_code, answer.session_id) == (0, 0)


def test_every_gateway_has_the_fault_and_one_that_starts_again_too(
    barnabas_cluster_factory: Any,
) -> None:
    cluster: Cluster = barnabas_cluster_factory(gateways=2)
    with cluster.fault("Metadata", client_id="raw", error="INVALID_REQUEST", times=20) as fault:
        for number in (1, 2):
            cluster.kill_and_wait(f"gateway-{number}")
        failed = 0
        for _ in range(25):  # a connection each: the kernel spreads them over both gateways
            with RawConnection(cluster.port) as connection:
                failed += connection.ask(METADATA, 13, {"topics": []}).error_code != 0
        assert (failed, fault.hits) == (20, 20)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"api": "Produse", "drop": True}, "'Produse' is no API of Kafka's"),
        ({"api": "Produce"}, "nothing would happen"),
        ({"api": "Produce", "drop": True, "error": 6}, "give one of error, drop and hang"),
        ({"api": "Produce", "error": "NOT_A_CODE"}, "no error code of Kafka's"),
        ({"api": "Produce", "drop": True, "probability": 2}, "expected more than 0 and at most 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    barnabas_cluster: Cluster, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ClusterFailed, match=reason):
        barnabas_cluster.fault(**arguments)


def test_a_cluster_that_was_not_started_for_tests_has_no_such_endpoints(
    barnabas_cluster_factory: Any, barnabas_cluster: Cluster
) -> None:
    barnabas_cluster.wait_ready()  # HTTP follows the line that says so by a moment
    assert barnabas_cluster._request("GET", "/faults")[0] == 200
    cluster: Cluster = barnabas_cluster_factory()
    cluster.stop()
    cluster._flags.remove("--fault-injection")
    cluster.start()
    cluster.wait_ready()
    assert cluster._request("GET", "/faults")[0] == 404
    assert cluster._request("POST", "/services/gateway-1/kill")[0] == 404
