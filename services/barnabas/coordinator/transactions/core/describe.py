"""DescribeTransactions: one transactional id as an administrator sees it. Only what is committed is told."""

from __future__ import annotations

from barnabas.coordinator.transactions.core.records import by_topic
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import TransactionDescription, TransactionTopic


def describe(shard: TransactionShard, transactional_id: str) -> TransactionDescription:
    """One id; TRANSACTIONAL_ID_NOT_FOUND when nobody knows it, INVALID_REQUEST for the empty one.

    Of a transaction that is decided, only the partitions that have no marker yet are named.
    """
    if not transactional_id:
        return describe_error(transactional_id, ErrorCode.invalid_request)
    transaction = shard.committed(transactional_id)
    if transaction is None:
        return describe_error(transactional_id, ErrorCode.transactional_id_not_found)
    partitions = transaction.partitions
    if transaction.state in PREPARED:
        partitions = frozenset(shard.unmarked.get(transactional_id, ()))
    return TransactionDescription(
        transactional_id=transactional_id,
        state=transaction.state,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TransactionTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def describe_error(transactional_id: str, code: ErrorCode) -> TransactionDescription:
    """The answer when there is nothing to describe."""
    return TransactionDescription(error_code=code, transactional_id=transactional_id)
