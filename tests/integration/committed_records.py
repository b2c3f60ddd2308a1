"""What readers of committed records find in a topic, and how much of it there is so far."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka_client import WAIT_SECONDS, dotted

POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Committed:
    """One record."""

    partition: int
    key: str | None
    value: str


class CommittedReader:
    """Owns a consumer that reads all partitions of a topic from their beginning, as far as they are committed."""

    def __init__(self, cluster: Any, topic: str, partitions: int, **settings: Any) -> None:
        """`settings` with underscores for dots."""
        self._topic = topic
        self._partitions = partitions
        self.records: list[Committed] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"committed-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
                **dotted(settings),
            }
        )

    def __enter__(self) -> Self:
        self._at_end: set[int] = set()
        self._consumer.assign([TopicPartition(self._topic, n, 0) for n in range(self._partitions)])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def has(self, count: int) -> bool:
        """Whether so many records came so far; takes in what has come since."""
        self._take(0.0)
        return len(self.records) >= count

    def read_to_end(self) -> list[Committed]:
        """All there are, once it came to the end of each partition."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self._at_end) < self._partitions:
            assert time.monotonic() < deadline, f"at the end of {self._at_end}, after {len(self.records)}"
            self._take(POLL_SECONDS)
        return self.records

    def _take(self, seconds: float) -> None:
        for message in self._consumer.consume(1_000, seconds):
            if message.error() is None:
                key = message.key()
                value = message.value().decode()
                self.records.append(Committed(message.partition(), key and key.decode(), value))
            elif message.error().name() == "_PARTITION_EOF":
                self._at_end.add(message.partition())
