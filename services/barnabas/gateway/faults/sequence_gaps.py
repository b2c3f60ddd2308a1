"""What an idempotent producer lacks in a partition because a fault refused it.

A producer sends ahead: behind a batch that an injected error refuses, others are under way already. A partition that
knows the producer would refuse those by their sequences, but one that has nothing of it yet takes any first sequence
(KIP-360), and the refused batch would be lost. So what comes behind a refused batch is refused with it, until the
producer sends the refused batch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE, parse_header

Place = tuple[object, int, int]
"""(topic by name or id, partition, producer id)."""


class SequenceGaps:
    """Owns, for one connection, the lowest refused sequence of each producer in each partition."""

    def __init__(self) -> None:
        self._lowest: dict[Place, int] = {}
        self.code = ErrorCode.none
        """The error that opened the last gap."""

    def __bool__(self) -> bool:
        return bool(self._lowest)

    def open(self, produce: Any, code: ErrorCode) -> None:
        """The batches of the Produce request `produce` are refused with `code`."""
        for place, sequence in _sequences(produce):
            self._lowest[place] = min(sequence, self._lowest.get(place, sequence))
            self.code = code

    def is_behind(self, produce: Any) -> bool:
        """Whether a batch of `produce` comes behind a refused one; if none does, it fills the gap."""
        found = list(_sequences(produce))
        if any(sequence > self._lowest.get(place, sequence) for place, sequence in found):
            return True
        for place, _ in found:
            self._lowest.pop(place, None)
        return False


def _sequences(produce: Any) -> Iterator[tuple[Place, int]]:
    """The first sequence for each partition, of batches that have one."""
    for topic in produce.topic_data:
        key = getattr(topic, "name", None) or getattr(topic, "topic_id", None)
        for partition in topic.partition_data:
            if partition.records is None or len(partition.records) < HEADER_SIZE:
                continue
            header = parse_header(partition.records)
            if header.producer_id >= 0:
                yield (key, partition.index, header.producer_id), header.base_sequence
