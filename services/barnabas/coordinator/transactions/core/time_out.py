"""Transactions that take longer than their clients said: aborted, and their clients fenced."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.end_txn import abort_by_broker
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.transaction import NO_TIMEOUT_MS, Transaction
from barnabas.kernel.errors import KafkaError


def abort_timed_out(shard: TransactionShard, decision: Decision, draw_producer_id: Callable[[], int]) -> None:
    """Abort what has been open for too long. What cannot be aborted now, for want of a producer id, is next time."""
    for transactional_id in shard.ongoing:
        transaction = shard.transactions[transactional_id]
        if not _is_timed_out(transaction, decision.now_ms):
            continue
        try:
            abort_by_broker(shard, transactional_id, transaction, decision, draw_producer_id)
        except KafkaError as error:
            decision.note(
                "a transaction that timed out is not aborted yet",
                transactional_id=transactional_id,
                reason=str(error),
            )
            continue
        decision.transactions_timed_out += 1
        decision.note(
            "a transaction timed out and is aborted",
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            timeout_ms=transaction.timeout_ms,
        )


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Not yet at the very millisecond of its time-out, as in Kafka."""
    if transaction.timeout_ms == NO_TIMEOUT_MS:
        return False
    return transaction.start_ms + transaction.timeout_ms < now_ms
