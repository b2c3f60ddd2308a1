"""Transactions that take longer than their clients said: aborted, and their clients fenced."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.end_txn import abort_by_broker
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.transaction import NO_TIMEOUT_MS, Transaction
from barnabas.kernel.errors import KafkaError


def abort_timed_out(shard: TransactionShard, decision: Decision, draw_producer_id: Callable[[], int]) -> bool:
    """Abort what has been open for too long, some of it at a time; returns whether there may be more. What cannot be
    aborted now, for want of a producer id, is when all others have been."""
    overdue = shard.overdue
    if not overdue:
        shard.look_at_ongoing(decision.monotonic_ms)
        overdue.extend(each for each in shard.ongoing if _is_timed_out(shard, each, decision))
    for _ in range(min(len(overdue), limits.TIMED_OUT_IDS_AT_ONCE)):
        transactional_id = overdue.popleft()
        if _is_timed_out(shard, transactional_id, decision):  # it may have ended while it waited
            _abort(shard, transactional_id, shard.transactions[transactional_id], decision, draw_producer_id)
    return bool(overdue)


def _abort(
    shard: TransactionShard,
    transactional_id: str,
    transaction: Transaction,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> None:
    try:
        abort_by_broker(shard, transactional_id, transaction, decision, draw_producer_id)
    except KafkaError as error:
        decision.note(
            "a transaction that timed out is not aborted yet",
            transactional_id=transactional_id,
            reason=str(error),
        )
        return
    decision.transactions_timed_out += 1
    decision.note(
        "a transaction timed out and is aborted",
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
    )


def _is_timed_out(shard: TransactionShard, transactional_id: str, decision: Decision) -> bool:
    """Not yet at the very millisecond of its time-out, as in Kafka.

    When it began is a time of day, which another coordinator can read as well. The clock may have been ahead then: so
    it is over, too, when this coordinator has seen it open for longer than its time-out.
    """
    if transactional_id not in shard.ongoing:
        return False
    transaction = shard.transactions[transactional_id]
    if transaction.timeout_ms == NO_TIMEOUT_MS:
        return False
    seen_ms = shard.seen_open_ms(transactional_id, decision.monotonic_ms)
    return max(decision.now_ms - transaction.start_ms, seen_ms) > transaction.timeout_ms
