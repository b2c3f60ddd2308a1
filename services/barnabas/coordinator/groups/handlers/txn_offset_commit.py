"""TxnOffsetCommit (key 28).

Before the first offsets of a transaction are written, its coordinator is asked whether this partition of
__consumer_offsets is part of it, or to make it so (KIP-890). Gateways turn TRANSACTION_ABORTABLE into what clients
before version 4 know. STALE_MEMBER_EPOCH is never said here: those clients know ILLEGAL_GENERATION.
"""

from __future__ import annotations

import asyncio

from barnabas.coordinator import limits
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.commit import commit_response
from barnabas.coordinator.groups.core.known_producers import Question
from barnabas.coordinator.groups.core.txn_commit import handle_txn_commit
from barnabas.coordinator.groups.handlers import Handler, check_group_id, producer_of
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages.coordinator_pb2 import OffsetCommitResponse, TxnOffsetCommitRequest
from barnabas.metadata.image import GROUP_METADATA_TOPIC


async def _handle(coordinator: GroupCoordinator, request: TxnOffsetCommitRequest) -> OffsetCommitResponse:
    check_group_id(request.group_id)
    producer = producer_of(request.producer_id, request.producer_epoch)
    runtime = coordinator.runtime_of(request.group_id)
    await runtime.load_times.wait_for_first()
    runtime.check_takes_writes()
    producers = runtime.shard.producers
    question = producers.ask(producer)
    try:
        if not producers.is_open(producer):
            _raise_for(producers.verdict(question))
            await _ask(coordinator, request, question, runtime.partition)
        response: OffsetCommitResponse = await runtime.submit(
            lambda shard, waiter, decision: handle_txn_commit(shard, request, question, waiter, decision)
        )
        return response
    finally:
        producers.forget(question)


async def _ask(
    coordinator: GroupCoordinator, request: TxnOffsetCommitRequest, question: Question, partition: int
) -> None:
    """Return once the partition is part of the transaction. Raises KafkaError."""
    seconds = limits.TRANSACTION_ANSWER_SECONDS
    asked = TransactionQuestion(
        request.transactional_id,
        *question.producer,
        adds_partition=request.adds_partitions,
        topic=GROUP_METADATA_TOPIC,
        partition=partition,
    )
    if coordinator.questions.verify_nowait(asked):
        return
    try:
        async with asyncio.timeout(seconds):
            code = await coordinator.questions.ask(asked)
    except (LinkError, TimeoutError) as error:
        # Clients answer this by asking again, without looking for another coordinator of the group.
        reason = str(error) or f"the transaction's coordinator did not answer within {seconds:.0f} s"
        raise KafkaError(ErrorCode.coordinator_load_in_progress, reason) from error
    # A transaction's coordinator fences with a code that clients do not know from others.
    _raise_for(ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced else code)


def _raise_for(code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise KafkaError(code)


def _refuse(request: TxnOffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return commit_response(request, lambda *_: error.code)


TXN_OFFSET_COMMIT = Handler("TxnOffsetCommit", _handle, _refuse)
