"""aiokafka, a client with its own protocol code: producing."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    UnknownError,
)
from aiokafka_client import admin_of, consumer_of, make_topic, producer_of, read

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_records_come_back_as_sent(cluster: Any, compression: str | None, *, idempotent: bool) -> None:
    topic = await make_topic(cluster, f"aio-round-trip-{compression}-{idempotent}")
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""), ("null", None)]
    sent = [
        (
            b"key-%d" % number if number % 3 else None,
            b"value " * number if number % 3 != 1 else None,  # this client wants a key or a value
            1_700_000_000_000 + number,
        )
        for number in range(200)
    ]
    settings = {"compression_type": compression, "enable_idempotence": idempotent, "linger_ms": 20}
    async with producer_of(cluster, **settings) as producer:
        futures = [
            await producer.send(topic, value, key, timestamp_ms=timestamp, headers=headers)
            for key, value, timestamp in sent
        ]
        answers = await asyncio.gather(*futures)
    assert [answer.offset for answer in answers] == list(range(200))
    async with consumer_of(cluster, topic) as consumer:
        got = await read(consumer, 200)
    assert [(record.key, record.value, record.timestamp) for record in got] == sent
    assert [record.offset for record in got] == list(range(200))
    assert all(list(record.headers) == headers for record in got)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_arrive_whatever_acknowledgement_is_asked_for(cluster: Any, acks: int | str) -> None:
    topic = await make_topic(cluster, f"aio-acks-{acks}", 2)
    async with producer_of(cluster, acks=acks) as producer:
        for number in range(40):
            answer = await producer.send_and_wait(topic, b"%d" % number, partition=number % 2)
            assert answer is None or (answer.partition, answer.offset) == (number % 2, number // 2)
            assert (answer is None) == (acks == 0)
    async with consumer_of(cluster, topic) as consumer:
        got = await read(consumer, 40)
    assert sorted((record.partition, record.offset, int(record.value)) for record in got) == sorted(
        (number % 2, number // 2, number) for number in range(40)
    )


async def test_a_batch_that_the_user_built_is_one_append(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-own-batch", 2)
    async with producer_of(cluster, compression_type="gzip") as producer:
        batch = producer.create_batch()
        for number in range(20):
            assert batch.append(key=b"k", value=b"%d" % number, timestamp=None) is not None
        answer = await (await producer.send_batch(batch, topic, partition=1))
    assert (answer.partition, answer.offset) == (1, 0)
    async with consumer_of(cluster, topic) as consumer:
        assert [int(record.value) for record in await read(consumer, 20)] == list(range(20))


async def test_large_records_pass_up_to_the_limit_and_not_beyond(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-large")
    largest = 1_048_588 - 61 - 11  # max.message.bytes less the headers of the batch and of its record
    async with producer_of(cluster, max_request_size=5_000_000) as producer:
        await producer.send_and_wait(topic, os.urandom(largest))
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, os.urandom(largest + 1))
    async with consumer_of(cluster, topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        (got,) = await read(consumer, 1)
    assert len(got.value) == largest


async def test_what_a_topic_refuses_is_an_error_of_its_own(cluster: Any) -> None:
    compacted = await make_topic(cluster, "aio-compacted", cleanup_policy="compact")
    timely = await make_topic(cluster, "aio-timely", message_timestamp_before_max_ms="60000")
    async with producer_of(cluster) as producer:
        with pytest.raises(UnknownError):  # INVALID_RECORD, which this client has no name for
            await producer.send_and_wait(compacted, b"no key")
        await producer.send_and_wait(compacted, b"keyed", key=b"key")
        with pytest.raises(InvalidTimestampError):
            await producer.send_and_wait(timely, b"old", timestamp_ms=1_600_000_000_000)
        await producer.send_and_wait(timely, b"new")


async def test_log_append_time_replaces_the_records_own(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-append-time", message_timestamp_type="LogAppendTime")
    async with producer_of(cluster) as producer:
        answer = await producer.send_and_wait(topic, b"x", timestamp_ms=1_600_000_000_000)
    assert answer.timestamp_type == 1
    async with consumer_of(cluster, topic) as consumer:
        (got,) = await read(consumer, 1)
    assert (got.timestamp, got.timestamp_type) == (answer.timestamp, 1)
    assert got.timestamp > 1_700_000_000_000


async def test_topic_is_made_by_the_first_produce(cluster: Any) -> None:
    async with producer_of(cluster) as producer:
        assert await producer.partitions_for("aio-made-by-producing") == {0}
        await producer.send_and_wait("aio-made-by-producing", b"hello")
    async with admin_of(cluster) as admin:
        assert "aio-made-by-producing" in await admin.list_topics()


async def test_a_partition_that_is_not_there_is_refused_before_it_is_sent(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-two-partitions", 2)
    async with producer_of(cluster) as producer:
        with pytest.raises(AssertionError, match="Unrecognized partition"):
            await producer.send_and_wait(topic, b"x", partition=7)
