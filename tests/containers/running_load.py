"""A producer and a consumer that run while things happen to the cluster, and what must hold of them afterwards."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import defaultdict
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS: Final = 6
RECORDS_PER_SECOND: Final = 200
CATCH_UP_SECONDS: Final = 90.0
CLIENT_LOG: Final = logging.getLogger("librdkafka")
READ_SECONDS_BEFORE: Final = 30.0


class Load:
    """Owns one idempotent producer (acks=all) and one member of a group, each in a thread.

    On leaving the context they stop and are held to this: no record failed, no client reported a fatal error, every
    acknowledged record was read, none is in the log twice, and each partition has them in the order of production.
    """

    def __init__(self, bootstrap: str) -> None:
        self.topic = f"load-{uuid.uuid4().hex[:8]}"
        self._bootstrap = bootstrap
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self._read: dict[tuple[int, int], int] = {}
        self._errors: list[str] = []
        self._produced = 0
        self._last_acknowledged: dict[int, float] = {}
        self.longest_silence_seconds = 0.0
        """The longest time in which a partition had no record acknowledged."""
        self._stop_producing = threading.Event()
        self._stop_reading = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, daemon=True),
            threading.Thread(target=self._consume, daemon=True),
        ]

    def __enter__(self) -> Self:
        create_topic(self._bootstrap, self.topic)
        for thread in self._threads:
            thread.start()
        self.wait_progress(READ_SECONDS_BEFORE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_producing.set()
        self._threads[0].join(CATCH_UP_SECONDS)
        if kind is None:
            self._wait_until_read(set(self._acknowledged.values()), CATCH_UP_SECONDS)
        self._stop_reading.set()
        self._threads[1].join(CATCH_UP_SECONDS)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises AssertionError where something was lost, doubled, out of order or failed."""
        assert not self._errors, self._errors[:5]
        assert len(self._acknowledged) == self._produced, (
            f"{self._produced} produced, {len(self._acknowledged)} acknowledged"
        )
        lost = set(self._acknowledged.values()) - set(self._read)
        assert not lost, f"{len(lost)} acknowledged records were not read, such as {min(lost)}"
        assert len(set(self._read.values())) == len(self._read), "a record is in the log twice"
        by_partition: dict[int, list[int]] = defaultdict(list)
        for (partition, _), number in sorted(self._read.items()):
            by_partition[partition].append(number)
        for partition, numbers in by_partition.items():
            assert numbers == sorted(numbers), f"partition {partition} is out of order"

    def wait_progress(self, seconds: float = CATCH_UP_SECONDS) -> None:
        """Wait until a record of every partition that was produced after this call was acknowledged and read."""
        first = self._produced
        deadline = time.monotonic() + seconds
        fresh: set[tuple[int, int]] = set()
        while len({partition for partition, _ in fresh}) < PARTITIONS:
            fresh = {place for number, place in list(self._acknowledged.items()) if number > first}
            self._check_time(deadline, f"records reach only the partitions of {fresh and sorted(fresh)[:10]}")
        firsts = {partition: (partition, offset) for partition, offset in sorted(fresh, reverse=True)}
        self._wait_until_read(set(firsts.values()), max(1.0, deadline - time.monotonic()))

    def _wait_until_read(self, places: set[tuple[int, int]], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while missing := places - set(self._read.copy()):
            self._check_time(deadline, f"{len(missing)} records are not read, such as {min(missing)}")

    def _check_time(self, deadline: float, what: str) -> None:
        assert time.monotonic() < deadline, f"{what}; errors: {self._errors[:5]}"
        time.sleep(0.05)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "error_cb": self._on_error,
                "delivery.timeout.ms": int(CATCH_UP_SECONDS * 1000),
            },
            logger=CLIENT_LOG,
        )
        for number in itertools.count(1):
            if self._stop_producing.wait(1 / RECORDS_PER_SECOND):
                break
            producer.produce(
                self.topic, str(number), partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
            self._produced = number
            producer.poll(0)
        producer.flush(CATCH_UP_SECONDS)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(f"not delivered: {error}")
            return
        number, partition, offset = int(message.value()), message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        now = time.monotonic()
        silence = now - self._last_acknowledged.get(partition, now)
        self.longest_silence_seconds = max(self.longest_silence_seconds, silence)
        self._last_acknowledged[partition] = now
        self._acknowledged[number] = (partition, offset)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self.topic}-readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "error_cb": self._on_error,
            },
            logger=CLIENT_LOG,
        )
        consumer.subscribe([self.topic])
        try:
            while not self._stop_reading.is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is not None:
                    self._errors.append(f"not read: {message.error()}")
                    continue
                self._read[message.partition(), message.offset()] = int(message.value())
        finally:
            consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        # Others (a connection that broke, no broker for a moment) the client mends by itself: librdkafka says so.
        if error.fatal():
            self._errors.append(f"fatal: {error}")


def create_topic(bootstrap: str, name: str) -> None:
    """Create a topic with as many replicas as the cluster gives, asking again while the controller changes, as Java's
    client does by itself.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while True:
        try:
            admin.create_topics([NewTopic(name, PARTITIONS)], request_timeout=30)[name].result(60)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:  # the attempt before, of which nobody knew
                return
            if code != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def read_all(bootstrap: str, topic: str, group: str = "") -> dict[tuple[int, int], int]:
    """Every record of `topic` from its beginning, by (partition, offset); of `group` nothing is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group or "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {ended} were read to their end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[message.partition(), message.offset()] = int(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found
