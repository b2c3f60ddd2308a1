"""What the answers of a transaction's coordinator are to the producer (KIP-890)."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError

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


def code_of(answer: asyncio.Future[ErrorCode]) -> ErrorCode:
    """NETWORK_EXCEPTION where nobody has answered."""
    has_answer = not answer.cancelled() and answer.exception() is None
    return answer.result() if has_answer else ErrorCode.network_exception


def refusal(code: ErrorCode, *, adds_partitions: bool) -> KafkaError | None:
    """Why the records are refused after this answer; None when they may be appended."""
    if code is ErrorCode.none:
        return None
    passes = code in _NOT_NOW or (code is ErrorCode.concurrent_transactions and not adds_partitions)
    told = ErrorCode.not_enough_replicas if passes else _TOLD.get(code, code)
    return KafkaError(
        told,
        f"the transaction's coordinator did not confirm that the partition is part of it: {code.name.upper()}",
    )
