"""What the tests of kafka-python share: clients that are closed at the end, and waiting with a deadline."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

with warnings.catch_warnings():
    # It reads its message definitions on import, through a function that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read_text|open_text) is deprecated", DeprecationWarning)
    import kafka.coordinator.assignors.cooperative_sticky
    import kafka.coordinator.assignors.range
    import kafka.coordinator.assignors.roundrobin
    import kafka.coordinator.assignors.sticky.sticky_assignor
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition, errors
    from kafka.admin import KafkaAdminClient

WAIT_SECONDS = 30
POLL_MS = 5000
"""A poll ends when records come: see `Worker` for why it must not end much sooner."""

_NUMBERS = itertools.count()


@contextmanager
def admin_of(cluster: Any) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def make_topic(cluster: Any, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; `retention_ms="5"` is the setting retention.ms."""
    settings = {key.replace("_", "."): text for key, text in config.items()}
    with admin_of(cluster) as admin:
        admin.create_topics(
            {name: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}}
        )
    return name


@contextmanager
def producer_of(cluster: Any, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=WAIT_SECONDS)


def produce(cluster: Any, topic: str, count: int, **record: Any) -> None:
    """Records "0", "1", ..., acknowledged when this returns."""
    with producer_of(cluster) as producer:
        futures = [producer.send(topic, b"%d" % number, **record) for number in range(count)]
        for future in futures:
            future.get(WAIT_SECONDS)


@contextmanager
def consumer_of(
    cluster: Any, *topics: str, group: str | None = None, **settings: Any
) -> Iterator[KafkaConsumer]:
    """A consumer that starts at the earliest offset unless told otherwise."""
    settings = {"auto_offset_reset": "earliest", "group_id": group, **settings}
    consumer = KafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    """Exactly `count` records, or fail with how many came."""
    records: list[Any] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        for some in consumer.poll(POLL_MS, max_records=count - len(records)).values():
            records += some
    assert len(records) == count, f"{len(records)} of {count} records came"
    return records


class Worker(threading.Thread):
    """A consumer at work in a thread of its own: `for record in consumer`, until a record tells it to stop.

    A member of a group must not poll for short times: where a poll ends while the answer to SyncGroup is on its way,
    this client (3.0.12) joins the group and forgets its assignment. Hence no `poll(50)` in a loop over consumers.
    """

    def __init__(
        self,
        cluster: Any,
        *topics: str,
        group: str,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name=f"worker-{next(_NUMBERS)}", daemon=True)
        self._cluster = cluster
        self.records: list[Any] = []
        # kafka-python forgets a subscription made while its first Metadata request is under way, until the next one.
        often = {"metadata_max_age_ms": 1_000}
        settings = {"auto_offset_reset": "earliest", "group_id": group, **often, **settings}
        self.consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, **settings)
        self.consumer.subscribe(topics, pattern=pattern, listener=listener)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive():
            self.stop()

    def run(self) -> None:
        for record in self.consumer:
            if record.key == self.name.encode():
                break
            if record.key is None:
                self.records.append(record)
        self.consumer.close()

    def stop(self) -> None:
        """Tell it to stop, through a partition that it reads, and wait until it has closed its consumer."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.is_alive():
            assert time.monotonic() < deadline, f"{self.name} goes on"
            for place in sorted(self.consumer.assignment())[:1]:
                produce(self._cluster, place.topic, 1, partition=place.partition, key=self.name.encode())
            self.join(0.5)


def wait_until(condition: Callable[[], bool], report: Callable[[], Any] = str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, report()
        time.sleep(0.02)


def wait_for_assignments(workers: list[Worker], counts: list[int]) -> None:
    wait_until(
        lambda: [len(worker.consumer.assignment()) for worker in workers] == counts,
        lambda: [worker.consumer.assignment() for worker in workers],
    )


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


__all__ = [
    "WAIT_SECONDS",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "TopicPartition",
    "Worker",
    "admin_of",
    "consumer_of",
    "errors",
    "kafka",
    "make_topic",
    "produce",
    "producer_of",
    "read",
    "values",
    "wait_for_assignments",
    "wait_until",
]
