"""Sending records and counting what became of them.

librdkafka reports failures alone (`delivery.report.only.error`): a callback for each of a million records would cost
more than sending them. What is still in its queue after the last flush has failed too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.kafka import errors
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.missing_topic import check_topic
from barnabas.cli.refusal import Refused
from barnabas.cli.text.envelope import EnvelopeRecord, Header

QUEUE_POLL_SECONDS: Final = 0.05
FLUSH_SECONDS_MAX: Final = 300.0
"""As long as librdkafka tries to deliver a record by default (message.timeout.ms)."""

INTERRUPTED_FLUSH_SECONDS: Final = 10.0
"""How long Ctrl-C waits for what was read already."""

ANY_PARTITION: Final = -1
NO_TIMESTAMP: Final = 0


class Sender:
    """Owns a producer; counts records sent and failed. A context manager that delivers what is queued."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        partition: int = ANY_PARTITION,
        settings: dict[str, Any],
        block_seconds_max: float | None = None,
    ) -> None:
        self.sent = 0
        self.failed = 0
        self._connection = connection
        self._topic = topic
        self._partition = partition
        self._topics: set[str] = set()
        """Those that are there, or that the producer will tell of."""
        self._first_error: KafkaError | None = None
        self._block_seconds_max = block_seconds_max
        """How long the queue may stay full before sending fails; None for as long as it takes."""
        self._producer = connection.producer(
            {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # the partition that a Java producer would choose
                "queue.buffering.max.kbytes": 262_144,
                **settings,
                **without_idempotence(connection.properties),
                "delivery.report.only.error": True,
                "on_delivery": self._on_failure,
                # The errors that matter come with each record; brokers that come and go are tried again.
                "error_cb": lambda error: None,
            }
        )

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        seconds = FLUSH_SECONDS_MAX if kind is None else INTERRUPTED_FLUSH_SECONDS
        left = self._producer.flush(seconds)
        if kind is None:
            self._raise_failures(left)

    def send_values(self, values: Sequence[bytes], headers: Sequence[Header]) -> None:
        """Many values without keys: the fast way."""
        produce, topic, partition = self._producer.produce, self._topic, self._partition
        self._check_topic(topic)
        more: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if partition != ANY_PARTITION:
            more["partition"] = partition
        at, count = 0, len(values)
        while at < count:
            try:
                while at < count:
                    produce(topic, values[at], **more)
                    at += 1
            except BufferError:
                self._wait_for_room()
        self._producer.poll(0)
        self.sent += count

    def send(
        self, record: EnvelopeRecord, headers: Sequence[Header], *, keeps_partition: bool = False
    ) -> None:
        """One record; its own topic counts where the sender has none. Raises Refused and KafkaException."""
        topic = self._topic or record.topic
        if not topic:
            raise Refused("the record names no topic: give --topic")
        self._check_topic(topic)
        partition = self._partition
        if keeps_partition and record.partition is not None:
            partition = record.partition
        arguments: dict[str, Any] = {
            "partition": partition,
            "timestamp": NO_TIMESTAMP if record.timestamp is None else record.timestamp,
        }
        if record.headers or headers:
            arguments["headers"] = [*record.headers, *headers]
        while True:
            try:
                self._producer.produce(topic, record.value, record.key, **arguments)
                break
            except BufferError:
                self._wait_for_room()
        self.sent += 1

    def flush(self) -> None:
        """Wait until all that was sent is acknowledged, or has failed; a failure is raised."""
        self._raise_failures(self._producer.flush(FLUSH_SECONDS_MAX))

    def poll(self) -> None:
        """Let librdkafka report failures."""
        self._producer.poll(0)

    def _check_topic(self, topic: str) -> None:
        if topic not in self._topics:
            check_topic(self._connection, self._producer, topic)
            self._topics.add(topic)

    def _wait_for_room(self) -> None:
        """Let librdkafka send some of what is queued. Raises Refused when nothing leaves the queue for too long."""
        queued, started = len(self._producer), time.monotonic()
        while True:
            self._producer.poll(QUEUE_POLL_SECONDS)
            limit = self._block_seconds_max
            if limit is None or len(self._producer) < queued:
                return
            if time.monotonic() - started >= limit:
                raise Refused(
                    f"the buffer stayed full for {limit:g} s: wait longer (--max-block-ms), or give it more "
                    "memory (--max-memory-bytes)"
                )

    def _on_failure(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self.failed += 1
            self._first_error = self._first_error or error

    def _raise_failures(self, left: int) -> None:
        if self.failed or left:
            reason = (
                errors.describe_with_advice(self._first_error) if self._first_error else "no answer in time"
            )
            raise Refused(f"{self.failed + left} of {self.sent} records were not delivered: {reason}")


def without_idempotence(properties: Mapping[str, str]) -> dict[str, str]:
    """The user's properties; acks other than all switch idempotence off where nothing is said of it, as in Java."""
    acks = properties.get("acks", properties.get("request.required.acks", "all"))
    if acks in ("all", "-1") or "enable.idempotence" in properties:
        return dict(properties)
    return {**properties, "enable.idempotence": "false"}


@contextlib.contextmanager
def size_errors_named() -> Iterator[None]:
    """A record that librdkafka does not take at all is refused with the way out."""
    try:
        yield
    except KafkaException as error:
        if errors.is_code(error, KafkaError.MSG_SIZE_TOO_LARGE):
            raise Refused(
                "a record is larger than this producer takes: raise it with -X message.max.bytes=N (and the topic's "
                "max.message.bytes)"
            ) from error
        raise
