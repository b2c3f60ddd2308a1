"""The states of a transactional id, and what moves it from one to the next."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.StrEnum):
    """Kafka's names, as DescribeTransactions and ListTransactions show them."""

    EMPTY = "Empty"
    """A producer has its id and epoch, and has not begun anything."""
    ONGOING = "Ongoing"
    """Partitions have been added; client or time-out will end it."""
    PREPARE_COMMIT = "PrepareCommit"
    """Committed for good; partitions are being told."""
    PREPARE_ABORT = "PrepareAbort"
    """Aborted for good; partitions are being told."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Committed, and every partition knows."""
    COMPLETE_ABORT = "CompleteAbort"
    """Aborted, and every partition knows."""
    DEAD = "Dead"
    """Kafka's while an id is being forgotten; known as a name, nothing is ever in it here."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Kafka's between a decision to abort and its record; known as a name, nothing is ever in it here."""


class TransactionEvent(enum.Enum):
    """What can happen to a transactional id."""

    INITIALIZED = enum.auto()
    PARTITIONS_ADDED = enum.auto()
    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    MARKED = enum.auto()
    """Every partition has its marker."""


_WITHOUT_TRANSACTION: Final[Mapping[TransactionEvent, TransactionState]] = {
    TransactionEvent.INITIALIZED: TransactionState.EMPTY,
    TransactionEvent.PARTITIONS_ADDED: TransactionState.ONGOING,
    # What was never written to may be aborted under version 2 of transactions (KIP-890); not committed.
    TransactionEvent.ABORTED: TransactionState.PREPARE_ABORT,
}

TRANSITIONS: Final[Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]]] = {
    TransactionState.EMPTY: _WITHOUT_TRANSACTION,
    TransactionState.ONGOING: {
        TransactionEvent.PARTITIONS_ADDED: TransactionState.ONGOING,
        TransactionEvent.COMMITTED: TransactionState.PREPARE_COMMIT,
        TransactionEvent.ABORTED: TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionEvent.MARKED: TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionEvent.MARKED: TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: _WITHOUT_TRANSACTION,
    TransactionState.COMPLETE_ABORT: _WITHOUT_TRANSACTION,
    TransactionState.DEAD: {},
    TransactionState.PREPARE_EPOCH_FENCE: {},
}
"""state -> event -> state; a pair that is not listed is a bug of ours."""

STATE_IDS: Final[Mapping[TransactionState, int]] = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
"""How the log names the states that are written to it; Kafka's other two, 6 and 7, never are."""

PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""Decided, and not every partition knows."""

COMPLETED: Final = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
"""Decided, and every partition knows."""


class UnexpectedEvent(Exception):
    """An event that the table does not list for the state."""


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """The state after `event`. Raises UnexpectedEvent for a pair that is not in the table."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise UnexpectedEvent(f"{event.name} cannot happen to a transaction that is {state}") from None
