"""Transactions that are open for longer than any may be, and who will end them: nobody, if they hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from barnabas.cli.balance.cluster_state import Place


@dataclass(frozen=True, slots=True)
class Producer:
    """What a partition remembers of a producer; None where there is nothing to remember."""

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp_ms: int
    start_offset: int | None
    """Where the transaction begins that is open."""

    @property
    def transaction(self) -> tuple[Place, int, int | None]:
        """Which transaction it is in, if it is in one: as long as this is the same, so is that."""
        return self.place, self.producer_id, self.start_offset


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a coordinator knows of a transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When the transaction began that is open."""
    places: Sequence[Place]
    """Partitions that it will tell how the transaction ends."""


@dataclass(frozen=True, slots=True)
class LateTransaction:
    """A transaction that is open in a partition for too long."""

    producer: Producer
    awaited: Transaction | None = None
    """Whose end its coordinator will bring there; None for one that hangs: it stays open until somebody ends it."""

    @property
    def is_hanging(self) -> bool:
        return self.awaited is None


def late(producers: Iterable[Producer], silent_since_ms: int) -> Iterator[Producer]:
    """Those in a transaction whose newest record is from before that time."""
    for producer in producers:
        if producer.start_offset is not None and producer.last_timestamp_ms < silent_since_ms:
            yield producer


def judged(producers: Iterable[Producer], known: Mapping[int, Transaction]) -> list[LateTransaction]:
    """Who ends the transactions of these producers; `known` is what coordinators know, by producer id."""
    found = []
    for producer in sorted(producers, key=lambda each: (each.place, each.start_offset or 0)):
        transaction = known.get(producer.producer_id)
        is_awaited = transaction is not None and producer.place in transaction.places
        found.append(LateTransaction(producer, transaction if is_awaited else None))
    return found


def overdue(found: Iterable[LateTransaction], begun_before_ms: int) -> list[LateTransaction]:
    """Those without the ones that a coordinator saw begin after that: their records only say an older time."""
    return [
        each
        for each in found
        if each.awaited is None or each.awaited.start_ms is None or each.awaited.start_ms < begun_before_ms
    ]


def still_open(found: Iterable[LateTransaction], now: Iterable[Producer]) -> list[LateTransaction]:
    """Those that were open before coordinators were asked and are after it: their answer holds for them."""
    by_transaction = {producer.transaction: producer for producer in now}
    return [
        replace(each, producer=by_transaction[each.producer.transaction])
        for each in found
        if each.producer.transaction in by_transaction
    ]
