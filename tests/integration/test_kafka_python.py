"""kafka-python, which infers the broker's release from ApiVersions: producing."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_python_client import WAIT_SECONDS, admin_of, consumer_of, errors, make_topic, producer_of, read

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def sockets_are_collected() -> Iterator[None]:
    """Now and then this client leaves a socket to the garbage collector; let it be found before other tests run."""
    yield
    gc.collect()


def test_the_broker_is_recognized_as_a_release_of_kafka(cluster: Any) -> None:
    """A set of APIs that no release has makes this client guess low, or give up with UnrecognizedBrokerVersion."""
    with producer_of(cluster) as producer, consumer_of(cluster) as consumer, admin_of(cluster) as admin:
        assert producer.config["api_version"] == consumer.config["api_version"] == (4, 3)
        shown = {key.name: versions for key, versions in admin.api_versions().items()}
    assert shown["Produce"][0] == 0  # librdkafka decides on compression from it (KAFKA-18659)
    assert shown["JoinGroup"][0] == 0  # Kafka 4.0.0 had removed them, the next release put them back
    assert shown["Fetch"] == (4, 18)


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_sent(cluster: Any, compression: str | None, *, idempotent: bool) -> None:
    topic = make_topic(cluster, f"kp-round-trip-{compression}-{idempotent}")
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b"")]  # it sends no null
    sent = [
        (
            b"key-%d" % number if number % 3 else None,
            b"value " * number if number % 3 != 1 else None,
            1_700_000_000_000 + number,
        )
        for number in range(200)
    ]
    settings = {"compression_type": compression, "enable_idempotence": idempotent, "linger_ms": 20}
    with producer_of(cluster, **settings) as producer:
        futures = [
            producer.send(topic, value, key, headers=headers, timestamp_ms=timestamp)
            for key, value, timestamp in sent
        ]
        answers = [future.get(WAIT_SECONDS) for future in futures]
    assert [(answer.partition, answer.offset) for answer in answers] == [(0, number) for number in range(200)]
    with consumer_of(cluster, topic) as consumer:
        got = read(consumer, 200)
    assert [(record.key, record.value, record.timestamp) for record in got] == sent
    assert [record.offset for record in got] == list(range(200))
    assert all(list(record.headers) == headers for record in got)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_whatever_acknowledgement_is_asked_for(cluster: Any, acks: int | str) -> None:
    topic = make_topic(cluster, f"kp-acks-{acks}", 2)
    with producer_of(cluster, acks=acks, enable_idempotence=False) as producer:
        for number in range(40):
            answer = producer.send(topic, b"%d" % number, partition=number % 2).get(WAIT_SECONDS)
            assert answer.partition == number % 2
            assert acks == 0 or answer.offset == number // 2
    with consumer_of(cluster, topic) as consumer:
        got = read(consumer, 40)
    assert sorted((record.partition, record.offset, int(record.value)) for record in got) == sorted(
        (number % 2, number // 2, number) for number in range(40)
    )


def test_large_records_pass_up_to_the_limit_and_not_beyond(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-large")
    largest = 1_048_588 - 61 - 11  # max.message.bytes less the headers of the batch and of its record
    with producer_of(cluster, max_request_size=5_000_000) as producer:
        producer.send(topic, os.urandom(largest)).get(WAIT_SECONDS)
        with pytest.raises(errors.MessageSizeTooLargeError):
            producer.send(topic, os.urandom(largest + 1)).get(WAIT_SECONDS)
    with consumer_of(cluster, topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        (got,) = read(consumer, 1)
    assert len(got.value) == largest


def test_what_a_topic_refuses_is_an_error_of_its_own(cluster: Any) -> None:
    compacted = make_topic(cluster, "kp-compacted", cleanup_policy="compact")
    timely = make_topic(cluster, "kp-timely", message_timestamp_before_max_ms="60000")
    with producer_of(cluster, enable_idempotence=False) as producer:  # an idempotent one gives up for good
        with pytest.raises(errors.InvalidRecordError):
            producer.send(compacted, b"no key").get(WAIT_SECONDS)
        producer.send(compacted, b"keyed", b"key").get(WAIT_SECONDS)
        with pytest.raises(errors.InvalidTimestampError):
            producer.send(timely, b"old", timestamp_ms=1_600_000_000_000).get(WAIT_SECONDS)
        producer.send(timely, b"new").get(WAIT_SECONDS)


def test_log_append_time_replaces_the_records_own(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-append-time", message_timestamp_type="LogAppendTime")
    with producer_of(cluster) as producer:
        answer = producer.send(topic, b"x", timestamp_ms=1_600_000_000_000).get(WAIT_SECONDS)
    with consumer_of(cluster, topic) as consumer:
        (got,) = read(consumer, 1)
    assert (got.timestamp, got.timestamp_type) == (answer.timestamp, 1)
    assert got.timestamp > 1_700_000_000_000


def test_topic_is_made_by_the_first_produce(cluster: Any) -> None:
    with producer_of(cluster) as producer:
        producer.send("kp-made-by-producing", b"hello").get(WAIT_SECONDS)
    with admin_of(cluster) as admin:
        assert "kp-made-by-producing" in admin.list_topics()


def test_a_transaction_counts_once_it_is_committed(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-transactions")
    with producer_of(cluster, transactional_id="kp-transactions") as producer:
        producer.init_transactions()
        for value, ends in ((b"aborted", "abort_transaction"), (b"committed", "commit_transaction")):
            producer.begin_transaction()
            producer.send(topic, value).get(WAIT_SECONDS)
            getattr(producer, ends)()
    with consumer_of(cluster, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"committed"]
