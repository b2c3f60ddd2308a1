"""AddPartitionsToTxn: partitions that a transaction is about to write to, or whether they are part of it."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.core.record_strings import fits_record
from barnabas.coordinator.transactions.core.decision import Decision, Waiter
from barnabas.coordinator.transactions.core.records import record_bytes
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction
from barnabas.kernel.errors import ErrorCode
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages.transactions_pb2 import TransactionPartitions, TransactionPartitionsResult


def handle_add_partitions(
    shard: TransactionShard, item: TransactionPartitions, waiter: Waiter, decision: Decision
) -> None:
    """Reply with a TransactionPartitionsResult: `item` is one transaction of a request.

    With `verify_only` nothing is decided, and a yes leaves at once: it says what is committed, as the partitions'
    leaders ask only after the client was told that it may write (so `submit` may be told that it does not write).
    """
    if item.verify_only:
        _answer_leader(shard, item, waiter, decision)
        return
    added = frozenset(_partitions(item))
    transaction = shard.transactions.get(item.transactional_id)
    code = _refusal(transaction, item)
    if transaction is not None and transaction.state in PREPARED:
        # Whatever else is to be said: the client may have heard of the end, and come under the id that follows.
        code = ErrorCode.concurrent_transactions
    if code is ErrorCode.none:
        assert transaction is not None
        is_ongoing = transaction.state is TransactionState.ONGOING
        if not (is_ongoing and added <= transaction.partitions):
            code = _add(shard, transaction, item, added, decision)
    result = add_partitions_result(item, lambda _: code)
    if code is ErrorCode.none:
        decision.reply(waiter, result)
    else:
        decision.refuse(waiter, code, result)


def add_partitions_result(
    item: TransactionPartitions, code_of: Callable[[TopicPartition], ErrorCode]
) -> TransactionPartitionsResult:
    """The answer with `code_of` each partition: there is no place for an error of the whole."""
    return TransactionPartitionsResult(error_codes=[code_of(each) for each in _partitions(item)])


def _add(
    shard: TransactionShard,
    transaction: Transaction,
    item: TransactionPartitions,
    added: frozenset[TopicPartition],
    decision: Decision,
) -> ErrorCode:
    """Decide that `added` are part of the transaction, unless its record would have no place."""
    if item.transaction_version and not (shard.transaction_version() or transaction.is_open_with_bump):
        return ErrorCode.unsupported_version
    if not all(fits_record(topic) for topic, _ in added):
        return ErrorCode.invalid_topic_exception
    changed = transaction.with_partitions(added, item.transaction_version, decision.now_ms)
    if (
        len(changed.partitions) > limits.TRANSACTION_PARTITIONS_MAX
        or record_bytes(item.transactional_id, changed.partitions) > limits.TRANSACTION_RECORD_BYTES_MAX
    ):
        return ErrorCode.transaction_abortable
    decision.write(item.transactional_id, changed)
    return ErrorCode.none


def _answer_leader(
    shard: TransactionShard, item: TransactionPartitions, waiter: Waiter, decision: Decision
) -> None:
    """A no may end the transaction, so it is only said where it can be written that this is the coordinator."""
    result = _verify(shard, item)
    refused = ErrorCode(max(result.error_codes, default=ErrorCode.none))
    if refused is ErrorCode.none:
        decision.reply_at_once(waiter, result)
    elif decision.is_read_only:
        code = ErrorCode.coordinator_load_in_progress
        decision.refuse(waiter, code, add_partitions_result(item, lambda _: code))
    else:
        decision.refuse(waiter, refused, result)


def _verify(shard: TransactionShard, item: TransactionPartitions) -> TransactionPartitionsResult:
    transaction = shard.committed(item.transactional_id)
    code = _refusal(transaction, item)

    def code_of(partition: TopicPartition) -> ErrorCode:
        if code is not ErrorCode.none:
            return code
        assert transaction is not None
        is_part = partition in transaction.partitions
        return ErrorCode.none if is_part else ErrorCode.transaction_abortable

    return add_partitions_result(item, code_of)


def is_part(shard: TransactionShard, asked: TransactionQuestion) -> bool:
    """Whether verification says yes: of what is committed, as it leaves at once."""
    transaction = shard.committed(asked.transactional_id)
    return (
        transaction is not None
        and _refusal(transaction, asked) is ErrorCode.none
        and TopicPartition(asked.topic, asked.partition) in transaction.partitions
    )


def _refusal(transaction: Transaction | None, item: TransactionPartitions | TransactionQuestion) -> ErrorCode:
    if not item.transactional_id:
        return ErrorCode.invalid_request
    if transaction is None or transaction.producer_id != item.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if transaction.producer_epoch != item.producer_epoch:
        return ErrorCode.producer_fenced
    if transaction.state in PREPARED:
        return ErrorCode.concurrent_transactions
    return ErrorCode.none


def _partitions(item: TransactionPartitions) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in item.topics for partition in topic.partitions]
