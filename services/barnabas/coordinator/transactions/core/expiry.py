"""Transactional ids that nobody has used for transactional.id.expiration.ms are forgotten."""

from __future__ import annotations

from itertools import islice

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import COMPLETED, TransactionState
from barnabas.coordinator.transactions.core.transaction import Transaction


def forget_unused(shard: TransactionShard, decision: Decision) -> bool:
    """Forget the ids whose time is up, some of them at a time; returns whether there may be more."""
    oldest_ms = decision.now_ms - shard.config.transactional_id_expiration_ms
    expired = (
        transactional_id
        for transactional_id, transaction in shard.transactions.items()
        if _may_expire(transaction) and transaction.last_update_ms <= oldest_ms
    )
    forgotten = [TransactionRecord(each, None) for each in islice(expired, limits.EXPIRED_IDS_AT_ONCE)]
    decision.records.extend(forgotten)
    decision.ids_expired += len(forgotten)
    return len(forgotten) == limits.EXPIRED_IDS_AT_ONCE


def _may_expire(transaction: Transaction) -> bool:
    """What is open, or decided and not known everywhere, stays however old it is."""
    return transaction.state is TransactionState.EMPTY or transaction.state in COMPLETED
