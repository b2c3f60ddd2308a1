"""What must still hold when the first records of a transaction are appended (KIP-890): nobody has ended it meanwhile.

Whether a partition is part of a transaction is asked of the transaction's coordinator, and the answer may be old news
by the time of the append: a marker may have come in between, and records behind it would be part of no transaction, or
of the next. So who asks has a guard opened first. A marker takes it away, and so does the transaction's first append;
what comes with another guard than that, or with one of an earlier leader epoch, is refused. Each epoch of a producer
has its own: a producer that was fenced, and goes on, takes nothing away from the one that has followed it.

Guards are in memory only: whoever leads next asks anew.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import BatchHeader

NO_GUARD: Final = 0
"""Of records for which nothing was asked: they have to belong to a transaction that is open in the log."""
UNGUARDED: Final = -1
"""Of records that need no guard: nobody asks (transaction.partition.verification.enable=false)."""


def is_guard(number: int) -> bool:
    """Whether this is one that was opened, and is to be closed."""
    return number not in (NO_GUARD, UNGUARDED)


class _Guard(NamedTuple):
    number: int
    producer_epoch: int
    leader_epoch: int
    is_new_epoch: bool
    """Whether each transaction of the producer has an epoch of its own (version 2 of transactions)."""
    at: float
    askers: int
    """Who opened it and has not closed it: something may be appended under it yet, or has been tried to be."""


class VerificationGuards:
    """Owns the guards of one partition, at most one for each epoch of a producer. For every thread: nothing waits."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` in seconds: the clock's monotonic time, since a setting says when they are forgotten."""
        self._now = now
        self._guards: dict[int, dict[int, _Guard]] = {}
        """By producer id and epoch: there are as many as batches wait or are being appended."""
        self._numbers = itertools.count(NO_GUARD + 1)
        self._changing = threading.Lock()

    def __len__(self) -> int:
        with self._changing:
            return sum(map(len, self._guards.values()))

    def open(self, producer_id: int, producer_epoch: int, leader_epoch: int, *, is_new_epoch: bool) -> int:
        """The guard for what is asked from now on, of this producer under this leader epoch: the one that is open, as
        nobody has ended a transaction since, or a new one.

        `is_new_epoch`: each transaction of the producer has an epoch of its own.
        """
        with self._changing:
            of_producer = self._guards.setdefault(producer_id, {})
            held = of_producer.get(producer_epoch)
            if held is None or held.leader_epoch != leader_epoch or held.is_new_epoch != is_new_epoch:
                held = _Guard(next(self._numbers), producer_epoch, leader_epoch, is_new_epoch, self._now(), 0)
            of_producer[producer_epoch] = held._replace(askers=held.askers + 1)
            return held.number

    def close(self, producer_id: int, number: int) -> None:
        """One who opened this guard appends nothing under it. Others may: what was confirmed before may be on its way
        to the disk.
        """
        with self._changing:
            of_producer = self._guards.get(producer_id, {})
            held = next((each for each in of_producer.values() if each.number == number), None)
            if held is None:
                return
            if held.askers > 1:
                of_producer[held.producer_epoch] = held._replace(askers=held.askers - 1)
                return
            del of_producer[held.producer_epoch]
            if not of_producer:
                del self._guards[producer_id]

    def check(self, header: BatchHeader, number: int, leader_epoch: int, *, is_known: bool) -> None:
        """Whether a transaction may begin in the log with this batch; `is_known` says whether the log has anything of
        the producer.

        Raises INVALID_TXN_STATE where the guard is not the open one. Under version 2 of transactions
        OUT_OF_ORDER_SEQUENCE_NUMBER for a producer that is not known and does not begin with sequence 0: each of its
        transactions does.
        """
        if number == UNGUARDED:
            return
        held = self._guards.get(header.producer_id, {}).get(header.producer_epoch)
        if held is None or held.number != number or held.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"the batch is not part of an open transaction of producer {header.producer_id}",
            )
        if held.is_new_epoch and not is_known and header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id} has nothing here, and its transaction does not begin with sequence 0 "
                f"but with {header.base_sequence}",
            )

    def on_begun(self, producer_id: int, producer_epoch: int) -> None:
        """A transaction of the producer is open in the log, under this epoch: no other begins under it or before it."""
        if producer_id in self._guards:
            self._keep(producer_id, lambda held: held.producer_epoch > producer_epoch)

    def on_marker(self, producer_id: int, producer_epoch: int) -> None:
        """A transaction has ended, and the producer goes on under this epoch. A guard of that very epoch is the next
        transaction's, where each has its own; one of a later epoch always is.
        """
        if producer_id in self._guards:
            self._keep(
                producer_id,
                lambda held: (
                    held.producer_epoch > producer_epoch
                    or (held.is_new_epoch and held.producer_epoch == producer_epoch)
                ),
            )

    def expire(self, seconds: float) -> None:
        """Forget guards that were opened so long ago: what was appended under them was refused, and not sent again."""
        oldest = self._now() - seconds
        for producer_id in list(self._guards):
            self._keep(producer_id, lambda held: held.at > oldest)

    def _keep(self, producer_id: int, stays: Callable[[_Guard], bool]) -> None:
        """Only those of the producer's guards that stay."""
        with self._changing:
            kept = {epoch: held for epoch, held in self._guards.pop(producer_id, {}).items() if stays(held)}
            if kept:
                self._guards[producer_id] = kept
