"""What an idempotent producer lacks in a partition because it was refused on this connection, or a fault did that.

A producer sends ahead: behind a batch that is refused, others are under way already. A partition that knows the
producer would refuse those by their sequences, but one that has nothing of it yet takes any first sequence (KIP-360),
and the refused batch would be lost. So what comes behind a refused batch is refused with it, until the producer sends
the refused batch again.

It may do that on another connection, where the partition's leader has gone. What comes behind the gap much later says
so to the leader, which takes it only if it knows the producer: whatever was refused is in its log then, or the
sequences tell. That these do not continue is never told to the client, but again what it was told of the refused batch:
librdkafka would give up the producer's epoch, and send again under the next one what may be in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple

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


class _Gap(NamedTuple):
    sequence: int
    """The lowest that was refused."""
    left: int
    """How many requests may still be refused for it."""
    opened_at: float
    """By the event loop's time."""

    def is_old(self, now: float) -> bool:
        return now - self.opened_at > limits.SEQUENCE_GAP_SECONDS


class SequenceGaps:
    """Owns, for one connection, the lowest refused sequence of each producer in each partition."""

    def __init__(self) -> None:
        self._gaps: dict[_Key, _Gap] = {}
        self.code = ErrorCode.none
        """The error that opened the last gap."""

    def __bool__(self) -> bool:
        return bool(self._gaps)

    @property
    def are_too_many(self) -> bool:
        """Whether the connection has to end: none may be forgotten before."""
        return len(self._gaps) > limits.SEQUENCE_GAPS_MAX

    def open(self, produce: Any, code: ErrorCode, only: Container[Place] | None = None) -> None:
        """The batches of the Produce request `produce`, or `only` those at these places in it, are refused."""
        now = asyncio.get_running_loop().time()
        for place, key, sequence in _sequences(produce):
            if only is None or place in only:
                known = self._gaps.get(key, _Gap(sequence, 0, now))
                self._gaps[key] = _Gap(min(sequence, known.sequence), IN_FLIGHT_MAX, known.opened_at)
                self.code = code

    def is_behind(self, produce: Any, refused: Container[Place] = (), *, fills: bool = True) -> bool:
        """Whether a batch of `produce` comes right behind a refused one: the request is to be refused as a whole then.

        If none does, it fills the gap, unless it came before what opened that. What is `refused` already does not
        count.
        """
        now = asyncio.get_running_loop().time()
        found = [(key, sequence) for place, key, sequence in _sequences(produce) if place not in refused]
        new = _Gap(0, IN_FLIGHT_MAX, now)
        gaps = [self._gaps.get(key, new._replace(sequence=sequence)) for key, sequence in found]
        is_behind = any(
            sequence > gap.sequence and not gap.is_old(now)
            for (_, sequence), gap in zip(found, gaps, strict=True)
        )
        for (key, sequence), gap in zip(found, gaps, strict=True):
            if is_behind and sequence > gap.sequence:
                self._refuse(key, gap)
            elif is_behind:  # for another partition: the refused batch itself comes again, or one before it
                self._gaps[key] = gap._replace(sequence=sequence, left=IN_FLIGHT_MAX)
            elif fills and sequence <= gap.sequence:
                self._gaps.pop(key, None)
        return is_behind

    def behind(self, produce: Any, refused: Container[Place] = ()) -> frozenset[Place]:
        """The places of batches that come behind a refused one, however long after it."""
        return frozenset(
            place
            for place, key, sequence in _sequences(produce)
            if place not in refused and key in self._gaps and sequence > self._gaps[key].sequence
        )

    def close(self, produce: Any, places: Container[Place]) -> None:
        """The leader took these: whatever comes before them is in its log."""
        for key in self._keys(produce, places):
            del self._gaps[key]

    def refuse_behind(self, produce: Any, places: Container[Place]) -> None:
        """The leader lacks what comes before these: they are refused with it."""
        for key in self._keys(produce, places):
            self._refuse(key, self._gaps[key])

    def _keys(self, produce: Any, places: Container[Place]) -> list[_Key]:
        """The gaps that are still open of the batches at these places."""
        return [key for place, key, _ in _sequences(produce) if place in places and key in self._gaps]

    def _refuse(self, key: _Key, gap: _Gap) -> None:
        if gap.left > 1:
            self._gaps[key] = gap._replace(left=gap.left - 1)
        else:
            self._gaps.pop(key, None)


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
