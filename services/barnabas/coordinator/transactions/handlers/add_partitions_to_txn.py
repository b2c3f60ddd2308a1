"""AddPartitionsToTxn (key 24), in its form for brokers: several transactions at once, to add to or to verify.

Each is answered on its own, since one may be another coordinator's or another partition's. What is only to be verified
is told of although the log takes no writes, unless it is refused.

A producer's next transaction often comes before the markers of the one before have landed. Its sender may have it wait
for them here, which takes as long as they do: told CONCURRENT_TRANSACTIONS, clients pause for longer.

A partition is added only where this coordinator's own metadata have it: so a partition that is missing from them later
was deleted, and nobody waits to tell it (`markers/places`).
"""

from __future__ import annotations

import asyncio

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.add_partitions import add_partitions_result, handle_add_partitions
from barnabas.coordinator.transactions.core.states import PREPARED
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.kind import TransactionRuntime
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.gathering import gather
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionPartitionsResult,
)


async def _handle(
    coordinator: TransactionCoordinator, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    results = await gather(_add(coordinator, each) for each in request.transactions)
    return AddPartitionsToTxnResponse(transactions=results)


async def _add(
    coordinator: TransactionCoordinator, item: TransactionPartitions
) -> TransactionPartitionsResult:
    try:
        if not item.transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
        runtime = coordinator.runtime_of(item.transactional_id)
        if not item.verify_only:
            unknown = _unknown(coordinator, item)
            if unknown:
                return add_partitions_result(item, lambda each: _code_beside(each, unknown))
        async with asyncio.timeout(limits.NO_WAIT_SECONDS_MAX if item.verify_only else None):
            result = await _decide(runtime, item)
        if item.wait_ms and not item.verify_only and ErrorCode.concurrent_transactions in result.error_codes:
            if _is_being_ended(runtime, item.transactional_id):
                seconds = min(item.wait_ms, limits.CONCURRENT_WAIT_MS_MAX) / 1000
                await coordinator.completions.wait(item.transactional_id, seconds)
            result = await _decide(runtime, item)
    except (KafkaError, TimeoutError) as error:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.coordinator_load_in_progress
        return add_partitions_result(item, lambda _: code)
    return result


async def _decide(runtime: TransactionRuntime, item: TransactionPartitions) -> TransactionPartitionsResult:
    result: TransactionPartitionsResult = await runtime.submit(
        lambda shard, waiter, decision: handle_add_partitions(shard, item, waiter, decision),
        writes=not item.verify_only,
    )
    return result


def _is_being_ended(runtime: TransactionRuntime, transactional_id: str) -> bool:
    """By now it may be complete."""
    transaction = runtime.shard.transactions.get(transactional_id)
    return transaction is not None and transaction.state in PREPARED


def _unknown(coordinator: TransactionCoordinator, item: TransactionPartitions) -> frozenset[TopicPartition]:
    asked = (TopicPartition(topic.name, partition) for topic in item.topics for partition in topic.partitions)
    return frozenset(each for each in asked if not coordinator.has_partition(each))


def _code_beside(partition: TopicPartition, unknown: frozenset[TopicPartition]) -> ErrorCode:
    """One partition that cannot be added keeps out the others."""
    is_unknown = partition in unknown
    return ErrorCode.unknown_topic_or_partition if is_unknown else ErrorCode.operation_not_attempted


def _refuse(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        transactions=[add_partitions_result(each, lambda _: error.code) for each in request.transactions]
    )


ADD_PARTITIONS_TO_TXN = Handler("AddPartitionsToTxn", _handle, _refuse)
