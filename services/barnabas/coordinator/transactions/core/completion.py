"""What follows from a decided transaction whose partitions are being told: the last step of it."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.shard import EndedTransaction, TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction


def left_to_mark(shard: TransactionShard, ended: EndedTransaction) -> frozenset[TopicPartition] | None:
    """Which partitions still lack the marker of `ended`; None where it is complete, and so is not to be told of any
    more: its producer may have begun another one under the same epoch.
    """
    unmarked = _unmarked(shard, ended.transactional_id, ended.producer_id, ended.producer_epoch)
    if unmarked is None:
        return None
    committed = shard.transactions[ended.transactional_id].state is TransactionState.PREPARE_COMMIT
    return frozenset(unmarked) if committed == ended.committed else None


def on_marked(shard: TransactionShard, ended: EndedTransaction, partitions: Iterable[TopicPartition]) -> bool:
    """These partitions have the markers of `ended`, or are gone; returns whether it can be completed now.

    News of what the shard knows nothing of (it was loaded again meanwhile, and has given the transaction out again) is
    False.
    """
    unmarked = _unmarked(shard, ended.transactional_id, ended.producer_id, ended.producer_epoch)
    if unmarked is None:
        return False
    unmarked.difference_update(partitions)
    return not unmarked


def complete(
    shard: TransactionShard, transactional_id: str, producer_id: int, epoch: int, decision: Decision
) -> None:
    """Decide that the transaction with these markers is complete.

    Nothing happens where it is already, or where some partition has no marker yet: it may be asked again at any time.
    """
    if _unmarked(shard, transactional_id, producer_id, epoch) == set():
        decision.write(transactional_id, shard.transactions[transactional_id].completed(decision.now_ms))


def complete_marked(shard: TransactionShard, decision: Decision) -> None:
    """Decide that all transactions are complete that lack no marker."""
    for transactional_id, unmarked in shard.unmarked.items():
        if not unmarked:
            decision.write(transactional_id, shard.transactions[transactional_id].completed(decision.now_ms))


def _unmarked(
    shard: TransactionShard, transactional_id: str, producer_id: int, epoch: int
) -> set[TopicPartition] | None:
    """Which partitions lack the marker of that id and epoch; None when no such transaction waits for any."""
    transaction: Transaction | None = shard.transactions.get(transactional_id)
    if transaction is None or transaction.state not in PREPARED:
        return None
    if (transaction.producer_id, transaction.producer_epoch) != (producer_id, epoch):
        return None
    return shard.unmarked.get(transactional_id)
