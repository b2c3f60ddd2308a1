"""Offsets of transactions that are open: they count once the transaction is committed (KIP-98, KIP-447).

A marker that commits makes an offset count only where no newer one was committed since: of two, the one counts whose
record comes later in the log, so that compaction, which leaves only the last record of a key, changes nothing. Records
are replayed in the order of the log, at start as in normal running; so which of them comes later is known without
their offsets in the log: each gets the next number. Numbers are kept only while they may be compared, which is as long
as some transaction has an offset for the same partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetKey


class _Pending(NamedTuple):
    value: OffsetAndMetadata
    place: int
    """Where its record stands in the log, among those that are compared."""


@dataclass(slots=True)
class _Contended:
    """A group's partition for which transactions have offsets."""

    committed_place: int = 0
    """Of the record whose offset counts; 0 for one from before any of the transactions."""
    producers: dict[int, None] = field(default_factory=dict)
    """The ids of whose transactions they are."""


class PendingOffsets:
    """Owns the offsets of the open transactions in one partition of __consumer_offsets."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, _Pending]] = {}
        self._by_group: dict[str, dict[tuple[str, int], _Contended]] = {}
        self._places = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def count_of(self, producer_id: int) -> int:
        """How many offsets the producer's transaction has."""
        return len(self._by_producer.get(producer_id, ()))

    def keys_of(self, producer_id: int) -> Collection[OffsetKey]:
        """What the producer's transaction has offsets for."""
        return list(self._by_producer.get(producer_id, ()))

    def has(self, key: OffsetKey) -> bool:
        """Whether some transaction has an offset there."""
        return (key.topic, key.partition) in self._by_group.get(key.group_id, {})

    def has_group(self, group_id: str) -> bool:
        """Whether some transaction has an offset of the group."""
        return group_id in self._by_group

    def of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """Where transactions have offsets of the group."""
        for topic, partition in self._by_group.get(group_id, {}):
            yield OffsetKey(group_id, topic, partition)

    def of_topics(self, names: Collection[str]) -> Iterator[OffsetKey]:
        """Where transactions have offsets, of any group, for these topics."""
        for group_id in self._by_group:
            yield from (key for key in self.of_group(group_id) if key.topic in names)

    def values_at(self, key: OffsetKey) -> Iterator[OffsetAndMetadata]:
        """What transactions have there."""
        contended = self._by_group.get(key.group_id, {}).get((key.topic, key.partition))
        for producer_id in () if contended is None else contended.producers:
            yield self._by_producer[producer_id][key].value

    def add(self, producer_id: int, key: OffsetKey, value: OffsetAndMetadata) -> None:
        """The producer's transaction has this offset, in place of an earlier one."""
        contended = self._by_group.setdefault(key.group_id, {}).setdefault(
            (key.topic, key.partition), _Contended()
        )
        contended.producers[producer_id] = None
        self._by_producer.setdefault(producer_id, {})[key] = _Pending(value, self._next_place())

    def on_committed_outside(self, key: OffsetKey) -> None:
        """An offset was committed without a transaction: it is newer than all there are."""
        contended = self._by_group.get(key.group_id, {}).get((key.topic, key.partition))
        if contended is not None:
            contended.committed_place = self._next_place()

    def drop(self, key: OffsetKey) -> None:
        """Nothing that any transaction has there is to count."""
        contended = self._by_group.get(key.group_id, {}).get((key.topic, key.partition))
        if contended is None:
            return
        for producer_id in contended.producers:
            self._remove(producer_id, key)
        self._settle(key)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[OffsetKey, OffsetAndMetadata]]:
        """The producer's transaction has ended; returns the offsets that count from now on."""
        counting = []
        for key, pending in self._by_producer.pop(producer_id, {}).items():
            contended = self._by_group[key.group_id][key.topic, key.partition]
            del contended.producers[producer_id]
            if committed and pending.place > contended.committed_place:
                contended.committed_place = pending.place
                counting.append((key, pending.value))
            if not contended.producers:
                self._settle(key)
        return counting

    def _remove(self, producer_id: int, key: OffsetKey) -> None:
        offsets = self._by_producer[producer_id]
        del offsets[key]
        if not offsets:
            del self._by_producer[producer_id]

    def _settle(self, key: OffsetKey) -> None:
        """No transaction has an offset there any more."""
        partitions = self._by_group[key.group_id]
        del partitions[key.topic, key.partition]
        if not partitions:
            del self._by_group[key.group_id]

    def _next_place(self) -> int:
        self._places += 1
        return self._places
