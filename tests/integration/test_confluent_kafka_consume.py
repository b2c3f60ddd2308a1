"""librdkafka through confluent-kafka: where a consumer starts, moves and stops reading."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec
from confluent_kafka_client import (
    WAIT_SECONDS,
    admin_of,
    consumer_of,
    make_topic,
    poll_error,
    poll_records,
    poll_until,
    produce,
    producer_of,
)

pytestmark = pytest.mark.integration


def values(messages: list[Any]) -> list[int]:
    return [int(message.value()) for message in messages]


def test_offsets_for_times_and_watermarks(cluster: Any) -> None:
    topic = make_topic(cluster, "times")
    producer = producer_of(cluster, compression_type="zstd", linger_ms=50)
    for number in range(100):
        producer.produce(topic, b"x", timestamp=1_600_000_000_000 + number * 1000)
    assert producer.flush(WAIT_SECONDS) == 0
    with consumer_of(cluster, "timers") as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS) == (0, 100)
        # In the middle of a compressed batch, and still exact to the record.
        for at, expected in (
            (0, 0),
            (1_600_000_042_000, 42),
            (1_600_000_042_001, 43),
            (1_700_000_000_000, OFFSET_END),
        ):
            (found,) = client.offsets_for_times([TopicPartition(topic, 0, at)], timeout=WAIT_SECONDS)
            assert found.offset == expected
    admin = admin_of(cluster)
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    assert latest[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 99


def test_seek_pause_and_resume(cluster: Any) -> None:
    topic = make_topic(cluster, "seeking")
    produce(cluster, topic, 20)
    here = TopicPartition(topic, 0)
    with consumer_of(cluster, "seekers") as client:
        client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        poll_records(client, 20)
        client.seek(TopicPartition(topic, 0, 15))
        assert values(poll_records(client, 5)) == [15, 16, 17, 18, 19]
        assert client.position([here])[0].offset == 20
        client.pause([here])
        client.seek(TopicPartition(topic, 0, 0))
        assert client.poll(0.3) is None
        client.resume([here])
        assert values(poll_records(client, 1)) == [0]


def test_reading_starts_in_the_middle_of_a_batch(cluster: Any) -> None:
    topic = make_topic(cluster, "mid-batch")
    producer = producer_of(cluster, compression_type="lz4", linger_ms=50)
    for number in range(50):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_SECONDS) == 0
    with consumer_of(cluster, "mid-batch-readers") as client:
        client.assign([TopicPartition(topic, 0, 33)])
        assert values(poll_records(client, 17)) == list(range(33, 50))


def test_reading_starts_a_number_of_records_before_the_end(cluster: Any) -> None:
    topic = make_topic(cluster, "tail")
    produce(cluster, topic, 20)
    with consumer_of(cluster, "tail-readers") as client:
        client.assign([TopicPartition(topic, 0, -2000 - 3)])  # RD_KAFKA_OFFSET_TAIL(3)
        assert values(poll_records(client, 3)) == [17, 18, 19]


def test_without_an_offset_reading_starts_where_the_reset_policy_says(cluster: Any) -> None:
    topic = make_topic(cluster, "resets")
    produce(cluster, topic, 5)
    with consumer_of(cluster, "reset-earliest") as client:
        client.subscribe([topic])
        assert values(poll_records(client, 5)) == [0, 1, 2, 3, 4]
    with consumer_of(
        cluster, "reset-latest", auto_offset_reset="latest", enable_partition_eof=True
    ) as client:
        client.subscribe([topic])
        end = poll_error(client)
        assert end.code() == KafkaError._PARTITION_EOF
        produce(cluster, topic, 1)
        (fresh,) = poll_records(client, 1)
        assert fresh.offset() == 5
    with consumer_of(cluster, "reset-error", auto_offset_reset="error") as client:
        client.subscribe([topic])
        assert poll_error(client).code() == KafkaError._AUTO_OFFSET_RESET


def test_an_offset_that_was_deleted_or_never_was_is_out_of_range(cluster: Any) -> None:
    topic = make_topic(cluster, "out-of-range")
    produce(cluster, topic, 10)
    cut = TopicPartition(topic, 0, 6)
    admin = admin_of(cluster)
    assert admin.delete_records([cut])[cut].result(WAIT_SECONDS).low_watermark == 6
    for wrong in (2, 100):
        with consumer_of(cluster, "out-of-range-readers") as client:
            client.assign([TopicPartition(topic, 0, wrong)])
            assert values(poll_records(client, 4)) == [6, 7, 8, 9]
            assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS) == (6, 10)
        with consumer_of(cluster, "out-of-range-errors", auto_offset_reset="error") as client:
            client.assign([TopicPartition(topic, 0, wrong)])
            error = poll_error(client)
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
            assert "out of range" in error.str()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_without_transactions_both_isolation_levels_read_everything(cluster: Any, isolation: str) -> None:
    topic = make_topic(cluster, f"isolation-{isolation}")
    produce(cluster, topic, 30)
    with consumer_of(cluster, f"isolation-{isolation}", isolation_level=isolation) as client:
        client.subscribe([topic])
        assert values(poll_records(client, 30)) == list(range(30))


def test_small_fetches_read_everything_in_order(cluster: Any) -> None:
    topic = make_topic(cluster, "small-fetches", 2)
    producer = producer_of(cluster, batch_num_messages=10)
    for number in range(400):
        producer.produce(topic, f"{number}".rjust(500), partition=number % 2)
    assert producer.flush(WAIT_SECONDS) == 0
    limits = {"fetch_max_bytes": 6000, "message_max_bytes": 6000, "max_partition_fetch_bytes": 6000}
    with consumer_of(cluster, "small-fetches", **limits) as client:
        client.subscribe([topic])
        got = poll_records(client, 400)
    for partition in (0, 1):
        assert values([m for m in got if m.partition() == partition]) == list(range(partition, 400, 2))


def test_a_fetch_waits_for_its_least_number_of_bytes(cluster: Any) -> None:
    topic = make_topic(cluster, "patient")
    produce(cluster, topic, 1)
    with consumer_of(cluster, "patient-readers", fetch_min_bytes=10_000, fetch_wait_max_ms=1500) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        started = time.monotonic()
        poll_records(client, 1)
        assert time.monotonic() - started > 1.4  # too little is there: the broker waits its whole time
    patience = {"fetch_wait_max_ms": 60_000, "socket_timeout_ms": 70_000}
    with consumer_of(cluster, "patient-readers", fetch_min_bytes=10_000, **patience) as client:
        client.assign([TopicPartition(topic, 0, 1)])
        started = time.monotonic()
        produce(cluster, topic, 1, key=b"x" * 20_000)
        poll_records(client, 1)
        assert time.monotonic() - started < 30


def test_many_records_are_consumed_with_one_call(cluster: Any) -> None:
    topic = make_topic(cluster, "by-the-hundred")
    produce(cluster, topic, 100)
    with consumer_of(cluster, "hundreds") as client:
        client.subscribe([topic])
        assert values(client.consume(100, WAIT_SECONDS)) == list(range(100))


def test_position_follows_reading_and_nothing_is_committed_unasked(cluster: Any) -> None:
    topic = make_topic(cluster, "positions")
    produce(cluster, topic, 8)
    here = TopicPartition(topic, 0)
    with consumer_of(cluster, "positioners", enable_auto_commit=False) as client:
        client.subscribe([topic])
        poll_records(client, 5)
        assert client.position([here])[0].offset == 5
    with consumer_of(cluster, "positioners") as client:
        assert client.committed([here], WAIT_SECONDS)[0].offset == OFFSET_INVALID


def test_regular_expression_subscription_finds_new_topics(cluster: Any) -> None:
    make_topic(cluster, "regex-one")
    make_topic(cluster, "not-regex-one")
    with consumer_of(cluster, "regexers", topic_metadata_refresh_interval_ms=300) as client:
        client.subscribe(["^regex-.*"])
        poll_until(lambda: [p.topic for p in client.assignment()] == ["regex-one"], client)
        make_topic(cluster, "regex-two")
        poll_until(lambda: sorted(p.topic for p in client.assignment()) == ["regex-one", "regex-two"], client)


def test_a_topic_that_is_not_there_is_named_in_an_error_until_it_is(cluster: Any) -> None:
    settings = {"topic_metadata_refresh_interval_ms": 300, "allow_auto_create_topics": False}
    with consumer_of(cluster, "early-birds", **settings) as client:
        client.subscribe(["comes-later"])
        error = poll_error(client)
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert "comes-later" in error.str()
        make_topic(cluster, "comes-later")
        produce(cluster, "comes-later", 2)
        assert values(poll_records(client, 2)) == [0, 1]
