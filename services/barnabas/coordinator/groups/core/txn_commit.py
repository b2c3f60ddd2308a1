"""TxnOffsetCommit: a group's progress as part of a transaction; it counts once that is committed (KIP-98, KIP-447)."""

from __future__ import annotations

from functools import partial

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.offsets import txn_commit_refusal
from barnabas.coordinator.groups.core.commit import commit_response, verdict
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.known_producers import Question
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import TxnOffsetCommitRequest


def handle_txn_commit(
    shard: GroupShard, request: TxnOffsetCommitRequest, question: Question, waiter: Waiter, decision: Decision
) -> None:
    """Write each offset as part of the transaction, unless its topic is gone or its metadata too long, or refuse them
    all. `question` was answered: the partition is part of the transaction."""
    records = [
        OffsetRecord(
            request.group_id,
            topic.name,
            partition.partition,
            OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                decision.now_ms,
                topic_id=topic.topic_id,
            ),
            question.producer,
        )
        for topic in request.topics
        for partition in topic.partitions
        if verdict(shard, topic, partition) is ErrorCode.none
    ]
    code = _refusal(shard, request, question, len(records))
    if code is not ErrorCode.none:
        decision.refuse(waiter, code, commit_response(request, lambda *_: code))
        return
    decision.records += records
    decision.offsets_committed += len(records)
    decision.transactional_offsets_committed += len(records)
    decision.reply(waiter, commit_response(request, partial(verdict, shard)))


def _refusal(
    shard: GroupShard, request: TxnOffsetCommitRequest, question: Question, offsets: int
) -> ErrorCode:
    code = shard.producers.verdict(question)
    if code is not ErrorCode.none:
        return code
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        code = txn_commit_refusal(consumer_group, request)
    else:
        code = _refusal_of_member(shard.groups.get(request.group_id), request)
    if code is not ErrorCode.none:
        return code
    if shard.pending.count_of(request.producer_id) + offsets > limits.TRANSACTION_OFFSETS_MAX:
        return ErrorCode.transaction_abortable
    return ErrorCode.none


def _refusal_of_member(group: Group | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Requests before version 3 say nothing of a member, whatever the group; what is said is held against it."""
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    generation = request.generation_id
    if group is None:
        return ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
    if generation < 0 and (
        group.state is GroupState.EMPTY or (not request.member_id and instance_id is None)
    ):
        return ErrorCode.none
    code = group.validate_member(request.member_id, instance_id)
    if code is ErrorCode.none and generation != group.generation:
        return ErrorCode.illegal_generation
    return code
