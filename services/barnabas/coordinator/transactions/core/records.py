"""What the log, __transaction_state, says, apart from how it is encoded (`barnabas.coordinator.transactions.codec`).

One kind of fact: a transactional id as it is now. What does not fit a record must not be decided: see `record_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction

_OVERHEAD_BYTES: Final = 128
"""Of key and value, apart from what is counted, generously."""
_TOPIC_OVERHEAD_BYTES: Final = 8
_PARTITION_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transactional id as it is now; None forgets it."""

    transactional_id: str
    value: Transaction | None


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def record_bytes(transactional_id: str, partitions: Iterable[TopicPartition]) -> int:
    """About how large the record of a transaction with these partitions is; never too small."""
    count = 0
    topics = set()
    for topic, _ in partitions:
        count += 1
        topics.add(topic)
    names = sum(len(topic.encode()) + _TOPIC_OVERHEAD_BYTES for topic in topics)
    return _OVERHEAD_BYTES + len(transactional_id.encode()) + names + count * _PARTITION_BYTES
