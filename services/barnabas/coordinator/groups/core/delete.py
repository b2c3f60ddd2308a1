"""DeleteGroups and OffsetDelete: an administrator clears up what nobody uses any more (KIP-229, KIP-496)."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.tombstones import group_tombstones
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.expiry import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.records import GroupRecord, OffsetKey, OffsetRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    DeletedGroup,
    OffsetCommitPartitionResult,
    OffsetCommitTopicResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchTopic,
)


def handle_delete_group(shard: GroupShard, group_id: str, waiter: Waiter, decision: Decision) -> None:
    """Delete a group without members and all that it committed; answered with a DeletedGroup."""
    group = shard.groups.get(group_id)
    consumer_group = shard.consumers.get(group_id)
    if consumer_group is not None:
        code = ErrorCode.non_empty_group if consumer_group.members else ErrorCode.none
        if code is ErrorCode.none:
            decision.records += [*_offset_tombstones(shard, group_id), *group_tombstones(consumer_group)]
            decision.note("group deleted", group_id=group_id)
    elif group is None:
        code = ErrorCode.group_id_not_found
    elif group.state is not GroupState.EMPTY:
        code = ErrorCode.non_empty_group
    else:
        code = ErrorCode.none
        _delete_group(shard, group, decision)
    decision.reply(waiter, DeletedGroup(group_id=group_id, error_code=code))


def _delete_group(shard: GroupShard, group: Group, decision: Decision) -> None:
    offsets = _offset_tombstones(shard, group.group_id)
    if offsets or group.group_id in shard.stored:
        decision.records += [*offsets, GroupRecord(group.group_id, None)]
    else:
        shard.remove_group(group)  # the log never knew it
    decision.note("group deleted", group_id=group.group_id, offsets=len(offsets))


def _offset_tombstones(shard: GroupShard, group_id: str) -> list[OffsetRecord]:
    keys = [
        OffsetKey(group_id, topic, partition)
        for topic, partitions in shard.offsets.get(group_id, {}).items()
        for partition in partitions
    ]
    # What is pending goes too: a transaction that commits later is not to bring the group back.
    keys += shard.pending.of_group(group_id)
    return [OffsetRecord(*key, value=None) for key in dict.fromkeys(keys)]


def handle_offset_delete(
    shard: GroupShard, request: OffsetDeleteRequest, waiter: Waiter, decision: Decision
) -> None:
    """Delete offsets, but not those of topics that members read. Offsets that are not there count as deleted."""
    group_id = request.group_id
    group = shard.groups.get(group_id)
    consumer_group = shard.consumers.get(group_id)
    if group is None and consumer_group is None:
        code = ErrorCode.group_id_not_found
        decision.reply(waiter, OffsetDeleteResponse(error_code=code))
    elif (
        group is not None
        and group.state is not GroupState.EMPTY
        and group.protocol_type != CONSUMER_PROTOCOL_TYPE
    ):
        # Only a consumer's subscription says which topics are in use.
        code = ErrorCode.non_empty_group
        decision.reply(waiter, OffsetDeleteResponse(error_code=code))
    else:
        topics = []
        for topic in request.topics:
            is_subscribed = (group is not None and _is_subscribed(group, topic.name)) or (
                consumer_group is not None and consumer_group.is_subscribed_to(topic.name)
            )
            code = ErrorCode.group_subscribed_to_topic if is_subscribed else ErrorCode.none
            topics.append(_delete_offsets(shard, group_id, topic, code, decision))
        decision.reply(waiter, OffsetDeleteResponse(topics=topics))


def _delete_offsets(
    shard: GroupShard, group_id: str, topic: OffsetFetchTopic, code: ErrorCode, decision: Decision
) -> OffsetCommitTopicResult:
    if code is ErrorCode.none:
        committed = shard.offsets.get(group_id, {}).get(topic.name, {})
        decision.records += [
            OffsetRecord(group_id, topic.name, partition, None)
            for partition in dict.fromkeys(topic.partitions)
            if partition in committed or shard.pending.has(OffsetKey(group_id, topic.name, partition))
        ]
    return OffsetCommitTopicResult(
        name=topic.name,
        partitions=[
            OffsetCommitPartitionResult(partition=partition, error_code=code)
            for partition in topic.partitions
        ],
    )


def _is_subscribed(group: Group, topic: str) -> bool:
    """Whether some member reads the topic, or may: a subscription that cannot be read could hold any topic."""
    if not group.members:
        return False
    topics = subscribed_topics(group)
    return topics is None or topic in topics
