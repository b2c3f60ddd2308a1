"""librdkafka through confluent-kafka: producing, as a Python team's program does it, unchanged."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException
from confluent_kafka_client import (
    WAIT_SECONDS,
    admin_of,
    consumer_of,
    make_topic,
    poll_records,
    produce,
    producer_of,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_sent(cluster: Any, compression: str, *, idempotent: bool) -> None:
    topic = make_topic(cluster, f"round-trip-{compression}-{idempotent}")
    producer = producer_of(cluster, compression_type=compression, enable_idempotence=idempotent, linger_ms=20)
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""), ("null", None)]
    sent = [
        (
            f"key-{number}".encode() if number % 3 else None,
            b"value " * number if number % 5 else None,
            1_700_000_000_000 + number,
        )
        for number in range(200)
    ]
    reports: list[Any] = []
    for key, value, timestamp in sent:
        producer.produce(
            topic,
            value,
            key,
            timestamp=timestamp,
            headers=headers,
            on_delivery=lambda error, message: reports.append((error, message.offset())),
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert [error for error, _ in reports if error] == []
    assert sorted(offset for _, offset in reports) == list(range(200))

    with consumer_of(cluster, f"readers-{topic}") as client:
        client.subscribe([topic])
        got = poll_records(client, 200)
    assert [(m.key(), m.value(), m.timestamp()) for m in got] == [
        (key, value, (TIMESTAMP_CREATE_TIME, timestamp)) for key, value, timestamp in sent
    ]
    assert [m.offset() for m in got] == list(range(200))
    assert all(m.headers() == headers for m in got)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_whatever_acknowledgement_is_asked_for(cluster: Any, acks: str) -> None:
    topic = make_topic(cluster, f"acks-{acks}", 2)
    producer = producer_of(cluster, acks=acks)
    reports: list[Any] = []
    for number in range(40):
        producer.produce(
            topic,
            str(number),
            partition=number % 2,
            on_delivery=lambda error, message: reports.append((error, message.partition(), message.offset())),
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert [error for error, *_ in reports] == [None] * 40
    with consumer_of(cluster, f"acks-{acks}") as client:
        client.subscribe([topic])
        got = poll_records(client, 40)
    assert sorted((m.partition(), m.offset(), int(m.value())) for m in got) == sorted(
        (number % 2, number // 2, number) for number in range(40)
    )
    if acks != "0":  # without an answer no offset is known
        assert sorted(position for _, *position in reports) == [[p, n] for p in (0, 1) for n in range(20)]


def test_large_records_pass_up_to_the_limit_and_not_beyond(cluster: Any) -> None:
    topic = make_topic(cluster, "large-records")
    # max.message.bytes bounds a batch: 61 bytes of header and 11 around the value of its only record.
    largest = 1_048_588 - 61 - 11
    producer = producer_of(cluster, message_max_bytes=5_000_000, compression_type="none")
    reports: list[Any] = []
    for size in (largest, largest + 1):
        producer.produce(topic, os.urandom(size), on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(WAIT_SECONDS) == 0
    assert reports[0] is None
    assert reports[1].code() == KafkaError.MSG_SIZE_TOO_LARGE
    with consumer_of(cluster, "large-readers") as client:
        client.subscribe([topic])
        (got,) = poll_records(client, 1)
    assert len(got.value()) == largest


def test_the_limit_counts_bytes_after_compression(cluster: Any) -> None:
    topic = make_topic(cluster, "large-compressed", max_message_bytes="5000")
    reports: list[Any] = []
    for compression in ("none", "zstd"):
        producer = producer_of(cluster, message_max_bytes=5_000_000, compression_type=compression)
        producer.produce(topic, b"x" * 200_000, on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(WAIT_SECONDS) == 0
    refused, taken = reports
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert taken is None


def test_a_record_larger_than_every_fetch_limit_still_comes(cluster: Any) -> None:
    topic = make_topic(cluster, "larger-than-fetch")
    producer = producer_of(cluster)
    for number in range(3):
        producer.produce(topic, bytes([number]) * 500_000)
        assert producer.flush(WAIT_SECONDS) == 0
    limits = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000, "message_max_bytes": 1000}
    with consumer_of(cluster, "small-fetchers", **limits) as client:
        client.subscribe([topic])
        assert [m.value()[0] for m in poll_records(client, 3)] == [0, 1, 2]


def test_keys_choose_partitions_as_in_every_client(cluster: Any) -> None:
    """The hash of Java clients, murmur2: the same key goes to the same partition whoever sends it."""
    topic = make_topic(cluster, "partitioned", 8)
    producer = producer_of(cluster, partitioner="murmur2_random")
    for key in ("kafka", "giberish123456789", "1234", "234"):
        producer.produce(topic, b"x", key)
    assert producer.flush(WAIT_SECONDS) == 0
    with consumer_of(cluster, "partition-readers") as client:
        client.subscribe([topic])
        placed = {m.key(): m.partition() for m in poll_records(client, 4)}
    hashes = {
        b"kafka": 0xD067CF64,
        b"giberish123456789": 0x8F552B0C,
        b"1234": 0x9FC97B14,
        b"234": 0xE7C009CA,
    }
    assert placed == {key: (number & 0x7FFFFFFF) % 8 for key, number in hashes.items()}


def test_log_append_time_replaces_the_records_own(cluster: Any) -> None:
    topic = make_topic(cluster, "log-append-time", message_timestamp_type="LogAppendTime")
    before = time.time() * 1000
    produce(cluster, topic, 3, timestamp=1_600_000_000_000)
    with consumer_of(cluster, "append-time-readers") as client:
        client.subscribe([topic])
        stamps = [m.timestamp() for m in poll_records(client, 3)]
    assert {kind for kind, _ in stamps} == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(before - 1000 < stamp < time.time() * 1000 + 1000 for _, stamp in stamps)


def test_a_compacted_topic_refuses_a_batch_without_keys_and_nothing_else(cluster: Any) -> None:
    topic = make_topic(cluster, "keys-required", 2, cleanup_policy="compact")
    producer = producer_of(cluster)
    reports: dict[int, Any] = {}

    def on_delivery(error: Any, message: Any) -> None:
        reports[message.partition()] = error and error.code()

    producer.produce(topic, b"no key", partition=0, on_delivery=on_delivery)
    producer.produce(topic, b"keyed", b"key", partition=1, on_delivery=on_delivery)
    assert producer.flush(WAIT_SECONDS) == 0
    assert reports == {0: KafkaError.INVALID_RECORD, 1: None}


def test_only_the_bad_records_of_a_batch_are_blamed(cluster: Any) -> None:
    """KIP-467: librdkafka tells the application of each record whether it, or another one, was refused."""
    topic = make_topic(cluster, "some-without-keys", cleanup_policy="compact")
    # A flush would not wait until the batch is whole.
    producer = producer_of(cluster, linger_ms=1_000 * WAIT_SECONDS, batch_num_messages=100)
    codes: dict[int, str] = {}
    for number in range(100):
        producer.produce(
            topic,
            b"value",
            None if number % 10 == 3 else b"key",
            on_delivery=lambda error, _, number=number: codes.__setitem__(number, error.name()),
        )
    until = time.monotonic() + WAIT_SECONDS
    while len(codes) < 100 and time.monotonic() < until:
        producer.poll(0.1)
    assert [number for number in codes if codes[number] == "INVALID_RECORD"] == list(range(3, 100, 10))
    assert sorted(set(codes.values())) == ["INVALID_RECORD", "_INVALID_DIFFERENT_RECORD"]
    assert len(codes) == 100


def test_an_old_timestamp_is_refused_when_the_topic_says_so(cluster: Any) -> None:
    topic = make_topic(cluster, "timely", message_timestamp_before_max_ms="60000")
    producer = producer_of(cluster)
    reports: list[Any] = []
    producer.produce(
        topic, b"old", timestamp=1_600_000_000_000, on_delivery=lambda error, _: reports.append(error)
    )
    producer.produce(topic, b"new", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    assert reports[0].code() == KafkaError.INVALID_TIMESTAMP


def test_a_partition_that_is_not_there_is_refused_before_it_is_sent(cluster: Any) -> None:
    topic = make_topic(cluster, "two-partitions", 2)
    producer = producer_of(cluster)
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(WAIT_SECONDS) == 0
    with pytest.raises(KafkaException) as raised:
        producer.produce(topic, b"x", partition=7)
    assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_topic_is_made_by_the_first_produce(cluster: Any) -> None:
    produce(cluster, "made-by-producing", 1)
    assert "made-by-producing" in admin_of(cluster).list_topics(timeout=WAIT_SECONDS).topics
