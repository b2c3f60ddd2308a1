"""What the tests of confluent-kafka share: clients made as a user makes them, and waiting with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_SECONDS = 30


def admin_of(cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def make_topic(cluster: Any, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; `retention_ms="5"` is the setting retention.ms."""
    topic = NewTopic(
        name, partitions, 1, config={key.replace("_", "."): text for key, text in config.items()}
    )
    admin = admin_of(cluster)  # its requests end with it, so it must outlive the wait
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    return name


def producer_of(cluster: Any, **settings: Any) -> Producer:
    """A producer; `compression_type="zstd"` is the setting compression.type."""
    return Producer({"bootstrap.servers": cluster.bootstrap, **dotted(settings)})


def produce(cluster: Any, topic: str, count: int, **record: Any) -> None:
    """Records "0", "1", ... as one after the other; they are acknowledged when this returns."""
    producer = producer_of(cluster)
    errors: list[Any] = []
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error), **record)
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors == [None] * count


@contextmanager
def consumer_of(cluster: Any, group: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that is closed at the end; it starts at the earliest offset unless told otherwise."""
    client = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **dotted(settings),
        }
    )
    try:
        yield client
    finally:
        client.close()


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name if name.startswith("on_") else name.replace("_", "."): value for name, value in settings.items()
    }


def poll_records(client: Consumer, count: int) -> list[Any]:
    """Exactly `count` records, or fail with how many came."""
    records: list[Any] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        message = client.poll(0.5)
        if message is None:
            continue
        assert message.error() is None, message.error()
        records.append(message)
    assert len(records) == count, f"{len(records)} of {count} records came"
    return records


def poll_error(client: Consumer) -> Any:
    """The first error that `poll` hands out in place of a record."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        message = client.poll(0.5)
        if message is not None:
            assert message.error() is not None, message.value()
            return message.error()
    pytest.fail("no error came")


def poll_until(condition: Callable[[], bool], *clients: Consumer) -> None:
    """Poll the clients, which have nothing to read, until the condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"assigned: {[client.assignment() for client in clients]}"
        for client in clients:
            message = client.poll(0.05)
            assert message is None or message.error() is None, message.error()


def wait_for_assignments(clients: list[Consumer], counts: list[int]) -> None:
    poll_until(lambda: [len(client.assignment()) for client in clients] == counts, *clients)


def code_of(future: Any) -> int:
    """The code of the error with which a future of the admin client ends."""
    with pytest.raises(KafkaException) as raised:
        future.result(WAIT_SECONDS)
    code: int = raised.value.args[0].code()
    return code
