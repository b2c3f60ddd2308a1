"""What an idempotent producer lacks in a partition because this gateway refused it, or a fault did.

A producer sends ahead: behind a batch that is refused, others are under way already. A partition that knows the
producer would refuse those by their sequences, but one that has nothing of it yet takes any first sequence (KIP-360),
and the refused batch would be lost. So what comes behind a refused batch is refused with it, until the producer sends
the refused batch again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import HEADER_SIZE, parse_header

IN_FLIGHT_MAX: Final = 5
"""Requests that an idempotent producer has under way on a connection. What comes behind a refused batch after so many
was sent by one who knows of the refusal: the batch has gone another way, by another broker say."""

Place = tuple[int, int]
"""(index of the topic, index of the partition) in a Produce request."""

_Key = tuple[object, int, int]
"""(topic by name or id, partition, producer id)."""


class SequenceGaps:
    """Owns, for one connection, the lowest refused sequence of each producer in each partition."""

    def __init__(self) -> None:
        self._lowest: dict[_Key, tuple[int, int]] = {}
        """With how many requests may still be refused for it."""
        self.code = ErrorCode.none
        """The error that opened the last gap."""

    def __bool__(self) -> bool:
        return bool(self._lowest)

    @property
    def are_too_many(self) -> bool:
        """Whether the connection has to end: none may be forgotten before."""
        return len(self._lowest) > limits.SEQUENCE_GAPS_MAX

    def open(self, produce: Any, code: ErrorCode, only: Container[Place] | None = None) -> None:
        """The batches of the Produce request `produce`, or `only` those at these places in it, are refused."""
        for place, key, sequence in _sequences(produce):
            if only is None or place in only:
                lowest = min(sequence, self._lowest.get(key, (sequence, 0))[0])
                self._lowest[key] = lowest, IN_FLIGHT_MAX
                self.code = code

    def is_behind(self, produce: Any, refused: Container[Place] = ()) -> bool:
        """Whether a batch of `produce` comes behind a refused one, so that the request is to be refused as a whole.

        If none does, it fills the gap. What is `refused` already does not count.
        """
        found = [(key, sequence) for place, key, sequence in _sequences(produce) if place not in refused]
        behind = [key for key, sequence in found if sequence > self._lowest.get(key, (sequence, 0))[0]]
        for key, sequence in found:
            lowest, left = self._lowest.pop(key, (sequence, IN_FLIGHT_MAX + 1))
            if behind and left > 1:
                self._lowest[key] = min(lowest, sequence), left - 1
        return bool(behind)


def _sequences(produce: Any) -> Iterator[tuple[Place, _Key, int]]:
    """The first sequence for each partition, of batches that have one."""
    for topic_index, topic in enumerate(produce.topic_data):
        topic_key = getattr(topic, "name", None) or getattr(topic, "topic_id", None)
        for partition_index, partition in enumerate(topic.partition_data):
            if partition.records is None or len(partition.records) < HEADER_SIZE:
                continue
            header = parse_header(partition.records)
            if header.producer_id >= 0:
                place = topic_index, partition_index
                yield place, (topic_key, partition.index, header.producer_id), header.base_sequence
