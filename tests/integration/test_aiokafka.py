"""aiokafka: a client of its own, with its own protocol code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30


async def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "lz4", "snappy"])
async def test_records_come_back_as_sent(cluster: Any, compression: str | None) -> None:
    topic = f"aio-{compression}"
    await make_topic(cluster.bootstrap, topic, 2)
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, compression_type=compression, enable_idempotence=True
    )
    await producer.start()
    try:
        for number in range(50):
            await producer.send_and_wait(
                topic, str(number).encode(), key=b"k%d" % number, headers=[("h", b"v")]
            )
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            got = [await consumer.getone() for _ in range(50)]
        await consumer.commit()
        end = await consumer.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert sum(end.values()) == 50
    finally:
        await consumer.stop()
    assert sorted(int(record.value) for record in got) == list(range(50))
    assert all(record.headers == (("h", b"v"),) for record in got)


async def test_two_consumers_share_a_topic(cluster: Any) -> None:
    await make_topic(cluster.bootstrap, "aio-shared", 4)
    consumers = [
        AIOKafkaConsumer(
            "aio-shared",
            bootstrap_servers=cluster.bootstrap,
            group_id="aio-sharers",
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
        )
        for _ in range(2)
    ]
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    seen: list[bytes] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            seen.append(record.value)

    readers = [asyncio.create_task(read(consumer)) for consumer in consumers]
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while [len(consumer.assignment()) for consumer in consumers] != [2, 2]:
                await asyncio.sleep(0.05)
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap)
            await producer.start()
            for number in range(40):
                await producer.send_and_wait("aio-shared", b"%d" % number, partition=number % 4)
            await producer.stop()
            while len(seen) < 40:
                await asyncio.sleep(0.05)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
    assert sorted(map(int, seen)) == list(range(40))
