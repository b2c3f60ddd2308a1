"""What makes a cluster worth observing: producers, groups that keep up and one that lags, requests that fail."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from raw_client import RawConnection, Topic

from barnabas.records.record import encode_batch

TOPICS: Final = ("orders", "payments")
KEEPS_UP: Final = "billing"
LAGS: Final = "reports"
WAIT_SECONDS: Final = 30


@contextlib.contextmanager
def traffic(bootstrap: str, *, records_per_second: int = 100) -> Iterator[None]:
    """Traffic through the gateway at `bootstrap` while the context is open."""
    _create_topics(bootstrap)
    stopping = threading.Event()
    works: list[Callable[[], None]] = [
        lambda: _produce(bootstrap, records_per_second, stopping),
        lambda: _consume(bootstrap, KEEPS_UP, stopping, records_max=None),
        lambda: _consume(bootstrap, LAGS, stopping, records_max=50),
        lambda: _fail(bootstrap, stopping),
    ]
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in TOPICS]).values():
        try:
            future.result(WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _produce(bootstrap: str, records_per_second: int, stopping: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    number = 0
    while not stopping.wait(0.1):
        for _ in range(records_per_second // 10):
            number += 1
            producer.produce(TOPICS[number % 3 == 0], f"record {number}" * 20, key=str(number % 50))
        producer.poll(0)
    producer.flush(WAIT_SECONDS)


def _consume(bootstrap: str, group: str, stopping: threading.Event, *, records_max: int | None) -> None:
    """Read both topics in a group; with `records_max` stop reading after so many, and stay a member."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "auto.commit.interval.ms": 500})
    consumer.subscribe(list(TOPICS))
    seen, is_paused = 0, False
    while not stopping.is_set():
        seen += len(consumer.consume(20, 0.1))
        if records_max is not None and seen >= records_max and not is_paused:
            consumer.commit(asynchronous=False)
            consumer.pause(consumer.assignment())
            is_paused = True
    consumer.close()


def _fail(bootstrap: str, stopping: threading.Event) -> None:
    """A batch with a wrong checksum, and a fetch beyond the end, again and again."""
    port = int(bootstrap.rpartition(":")[2])
    topic = Topic(port)
    while not stopping.wait(0.5):
        with contextlib.suppress(OSError), RawConnection(port) as connection:
            batch = bytearray(encode_batch([(1, None, b"broken", ())]))
            batch[-1] ^= 0xFF
            topic.produce(connection, {0: bytes(batch)})
            topic.fetch(connection, 12, {0: 10**9})
            time.sleep(0.1)
