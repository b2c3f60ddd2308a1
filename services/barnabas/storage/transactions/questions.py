"""What is asked of a transaction's coordinator, and what its answers are to the producer (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError

OnAnswer = Callable[[int], None]
"""Called once with Kafka's error code, later and on the event loop; never for what was withdrawn."""


class TransactionKey(NamedTuple):
    """One transaction as a producer names it. Questions about one of them go together."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds_partitions: bool
    """Whether the partition is added to it, or has to be part of it already."""


class Question:
    """Whether a partition is part of a transaction; or that it is to be."""

    __slots__ = ("asked_at", "is_withdrawn", "key", "on_answer", "partition", "topic", "was_patient")

    def __init__(self, key: TransactionKey, topic: str, partition: int, on_answer: OnAnswer) -> None:
        self.key = key
        self.topic = topic
        self.partition = partition
        self.on_answer = on_answer
        self.is_withdrawn = False
        """Nobody wants to know any more."""
        self.asked_at = 0.0
        """By the event loop's time."""
        self.was_patient = False
        """It has been asked in a call that waits for the transaction before."""


_NOT_NOW: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""The coordinator cannot say. What a producer tries again without asking for other metadata is NOT_ENOUGH_REPLICAS."""

_TOLD: Final = {
    # A producer that is told PRODUCER_FENCED gives up; told this it may abort and go on (KIP-588).
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    # It is not the producer who may not ask.
    ErrorCode.cluster_authorization_failed: ErrorCode.invalid_txn_state,
}


def refusal(answer: int, *, adds_partitions: bool) -> KafkaError | None:
    """Why the records are refused after this answer; None when they may be appended."""
    if not answer:
        return None
    try:
        code = ErrorCode(answer)
    except ValueError:
        code = ErrorCode.unknown_server_error
    passes = code in _NOT_NOW or (code is ErrorCode.concurrent_transactions and not adds_partitions)
    told = ErrorCode.not_enough_replicas if passes else _TOLD.get(code, code)
    return KafkaError(
        told,
        f"the transaction's coordinator did not confirm that the partition is part of it: {code.name.upper()}",
    )
