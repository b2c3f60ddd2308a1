"""What the tests of aiokafka share: clients that are stopped at the end, and waiting with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

WAIT_SECONDS = 30
POLL_SECONDS = 0.02


@asynccontextmanager
async def admin_of(cluster: Any) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def make_topic(cluster: Any, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; `retention_ms="5"` is the setting retention.ms."""
    settings = {key.replace("_", "."): text for key, text in config.items()}
    async with admin_of(cluster) as admin:
        answer = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
    assert [code for _, code, *_ in answer.topic_errors] == [0], answer
    return name


@asynccontextmanager
async def producer_of(cluster: Any, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, **settings)
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()  # also after a failed start, which leaves connections open


async def produce(cluster: Any, topic: str, count: int, **record: Any) -> None:
    """Records "0", "1", ..., acknowledged when this returns."""
    async with producer_of(cluster) as producer:
        sent = [await producer.send(topic, b"%d" % number, **record) for number in range(count)]
        await asyncio.gather(*sent)


@asynccontextmanager
async def consumer_of(
    cluster: Any, *topics: str, group: str | None = None, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer; it begins at the earliest offset unless told otherwise."""
    settings = {"auto_offset_reset": "earliest", "group_id": group, **settings}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    """Exactly `count` records; TimeoutError when they do not come."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [await consumer.getone() for _ in range(count)]


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)


async def wait_for_assignments(consumers: list[AIOKafkaConsumer], counts: list[int]) -> None:
    await wait_until(lambda: [len(consumer.assignment()) for consumer in consumers] == counts)
