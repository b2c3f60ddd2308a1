"""OffsetCommit: a group's progress."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.coordinator.groups.consumer.core.offsets import commit_refusal
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.records import (
    NO_TIMESTAMP,
    TIMESTAMP_MS_MAX,
    OffsetAndMetadata,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.runtime.core.record_strings import fits_record
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
    TxnOffsetCommitRequest,
)


def handle_commit(
    shard: GroupShard, request: OffsetCommitRequest, waiter: Waiter, decision: Decision
) -> None:
    """Write each offset, unless its topic is gone or its metadata too long, or refuse them all."""
    group = shard.groups.get(request.group_id)
    consumer_group = shard.consumers.get(request.group_id)
    code = _refusal(group, request) if consumer_group is None else commit_refusal(consumer_group, request)
    if code is not ErrorCode.none:
        decision.refuse(waiter, code, commit_response(request, lambda *_: code))
        return
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        # A commit is as good as a heartbeat. While the generation is being assigned it is refused above.
        shard.start_session(group, group.members[request.member_id], decision)
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms >= 0:
        expire_ms = min(decision.now_ms + request.retention_time_ms, TIMESTAMP_MS_MAX)
    for topic in request.topics:
        for partition in topic.partitions:
            if verdict(shard, topic, partition) is not ErrorCode.none:
                continue
            value = OffsetAndMetadata(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                decision.now_ms,
                expire_ms,
                topic.topic_id,
            )
            decision.records.append(OffsetRecord(request.group_id, topic.name, partition.partition, value))
    decision.offsets_committed += len(decision.records)
    decision.reply(waiter, commit_response(request, partial(verdict, shard)))


def verdict(shard: GroupShard, topic: OffsetCommitTopic, partition: OffsetCommitPartition) -> ErrorCode:
    """What becomes of one offset in a commit that is not refused as a whole."""
    if shard.is_deleted(topic.topic_id):
        # Its gateway has not heard of that, and the client may mean a new topic of the name: it is to ask again.
        return ErrorCode.coordinator_load_in_progress
    metadata_max = shard.config.offset_metadata_max_bytes
    if is_too_long(partition.metadata, metadata_max):
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def commit_response(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    code_of: Callable[[OffsetCommitTopic, OffsetCommitPartition], ErrorCode],
) -> OffsetCommitResponse:
    """The answer with `code_of` each partition: the protocol has no place for an error of the whole."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResult(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResult(
                        partition=partition.partition, error_code=code_of(topic, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refusal(group: Group | None, request: OffsetCommitRequest) -> ErrorCode:
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    generation = request.generation_id
    if group is None or group.state is GroupState.EMPTY:
        if generation < 0:
            return ErrorCode.none  # a lone consumer, or an administrator
        if group is None:
            return ErrorCode.group_id_not_found
    elif generation < 0 and not request.member_id and instance_id is None:
        return ErrorCode.unknown_member_id
    code = group.validate_member(request.member_id, instance_id)
    if code is not ErrorCode.none:
        return code
    if generation != group.generation:
        return ErrorCode.illegal_generation
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member is in the generation but has no assignment yet: what it commits belongs to the last one.
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def is_too_long(metadata: str, length_max: int) -> bool:
    """Kafka counts UTF-16 code units, whatever the setting's name says. No setting makes a record take more."""
    if len(metadata) > length_max or not fits_record(metadata):
        return True
    return not metadata.isascii() and len(metadata.encode("utf-16-le")) // 2 > length_max
