"""One transactional id as it is at one moment, and what it becomes: values, which never change.

Every change makes a new value, which is written to the log whole. Rules of who may change what are the handlers'.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from barnabas.coordinator.transactions.core.states import TransactionEvent, TransactionState, next_state

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

EPOCH_MAX: Final = 2**15 - 1
"""The last epoch of a producer id. Clients are never given it: it is left for fencing them."""
EXHAUSTED_EPOCH: Final = EPOCH_MAX - 1
"""From this epoch on, a producer gets a new id and not a new epoch."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that another system decides (KIP-939): it is never aborted for taking long."""

EPOCH_BUMP_VERSION: Final = 2
"""From this transaction.version on, each transaction has an epoch of its own (KIP-890)."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id. Timestamps are in ms since the epoch, the timeout is in ms."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    """When it last changed: ids that have not for long are forgotten."""
    start_ms: int = NO_TIMESTAMP
    """When the transaction began; stays when it is completed. -1 when there has been none since InitProducerId."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Those that are part of the transaction; none once it is completed."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: by it, a request that is sent again over a new id is known."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from completion on; only where the epochs of the present one are used up."""
    client_version: int = 0
    """The version of transactions under which it was last changed, from the client's eyes (0 or 2)."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the present one, for a client that sends InitProducerId again; -1 where it would fence others,
    and after a reload: as in Kafka, the log does not have it."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs a new id for its next epoch."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def is_open_with_bump(self) -> bool:
        """Whether it is open and was begun by the rules of version 2: its client goes on by them, and ends it so,
        although transaction.version was lowered to 0 meanwhile."""
        return self.state is TransactionState.ONGOING and self.client_version >= EPOCH_BUMP_VERSION

    def started(self, timeout_ms: int, epoch: int, last_epoch: int, now_ms: int) -> Transaction:
        """After InitProducerId under the same producer id."""
        return self._after(
            TransactionEvent.INITIALIZED,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def rotated(self, producer_id: int, timeout_ms: int, last_epoch: int, now_ms: int) -> Transaction:
        """After InitProducerId that gave it the new `producer_id`."""
        started = self.started(timeout_ms, 0, last_epoch, now_ms)
        return replace(started, producer_id=producer_id)

    def with_partitions(self, added: Set[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """After partitions were added to it, which begins it where nothing was going on."""
        is_new = self.state is not TransactionState.ONGOING
        return self._after(
            TransactionEvent.PARTITIONS_ADDED,
            now_ms,
            partitions=self.partitions | added,
            start_ms=now_ms if is_new else self.start_ms,
            client_version=client_version,
        )

    def ended(self, committed: bool, now_ms: int) -> Transaction:
        """Decided by the rules of versions 0 and 1: under the epoch that it has."""
        event = TransactionEvent.COMMITTED if committed else TransactionEvent.ABORTED
        return self._after(event, now_ms, client_version=0)

    def fenced(self, now_ms: int) -> Transaction:
        """Aborted by the broker, by the rules of versions 0 and 1: under an epoch that its client does not have."""
        epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        aborted = self.ended(committed=False, now_ms=now_ms)
        return replace(aborted, producer_epoch=epoch, last_producer_epoch=NO_EPOCH)

    def ended_with_bump(self, committed: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """Decided by the rules of version 2: under the next epoch, with `next_producer_id` to follow where that is the
        last one. What was never begun can be aborted only."""
        event = TransactionEvent.COMMITTED if committed else TransactionEvent.ABORTED
        is_begun = self.state is TransactionState.ONGOING
        return self._after(
            event,
            now_ms,
            # Older versions of Kafka could get to the last epoch: an abort leads out of it.
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if is_begun else now_ms,
            client_version=EPOCH_BUMP_VERSION,
        )

    def completed(self, now_ms: int) -> Transaction:
        """After every partition got its marker: what its client goes on with."""
        producer_id, epoch = self.identity_once_completed
        return self._after(
            TransactionEvent.MARKED,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    @property
    def identity_once_completed(self) -> tuple[int, int]:
        """Producer id and epoch under which its client goes on, of a transaction that is decided."""
        if self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def _after(self, event: TransactionEvent, now_ms: int, **changes: Any) -> Transaction:
        return replace(
            self,
            state=next_state(self.state, event),
            previous_producer_id=self.producer_id,
            last_update_ms=now_ms,
            **changes,
        )


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that nobody knew, with a producer id of its own and its first epoch."""
    return Transaction(
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
        previous_producer_id=producer_id,  # as Kafka writes it: the id that it has is the one before, too
    )
