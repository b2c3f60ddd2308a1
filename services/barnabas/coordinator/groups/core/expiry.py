"""Offsets that nobody needs any more, and groups that have neither members nor offsets (KIP-211).

An offset expires offsets.retention.minutes after: the group became empty; or the last commit, where the group has
never had members, or has members of which none subscribes to the topic, or is one of the newer protocol. Clients that
asked for a retention of their own (OffsetCommit 2 to 4) get that instead. Where an open transaction has another
offset, nothing expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.embedded import Malformed, read_topics
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup
from barnabas.coordinator.groups.consumer.core.tombstones import group_tombstones
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetAndMetadata,
    OffsetKey,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import EXPIRATION, GroupShard
from barnabas.coordinator.groups.core.states import GroupState

CONSUMER_PROTOCOL_TYPE = "consumer"


def schedule_expiry(shard: GroupShard, decision: Decision) -> None:
    """Look for expired offsets one interval from now."""
    interval_ms = shard.config.offsets_retention_check_interval_ms
    shard.timers.schedule(EXPIRATION, decision.monotonic_ms + interval_ms)


def on_expiration_deadline(shard: GroupShard, decision: Decision) -> None:
    """Delete what has expired, and look again after the interval."""
    for group in list(shard.groups.values()):
        _expire_group(shard, group, decision)
    for consumer_group in shard.consumers.groups.values():
        _expire_consumer_group(shard, consumer_group, decision)
    delete_offsets(shard, islice(_left_over(shard), limits.OFFSETS_DELETED_AT_ONCE), decision)
    schedule_expiry(shard, decision)


def delete_pending_of_topics(shard: GroupShard, deleted: Mapping[bytes, str], decision: Decision) -> None:
    """Delete the offsets that transactions have for topics that are gone, and what was committed beneath them: a new
    topic of the same name starts anew. Where something of the new one's is among it, all stays: it goes together."""
    for key in shard.pending.of_topics(set(deleted.values())):
        committed = shard.offset_of(key)
        values = [*shard.pending.values_at(key), *(() if committed is None else (committed,))]
        if all(not value.topic_id or value.topic_id in deleted for value in values):
            decision.records.append(OffsetRecord(*key, value=None))


def offsets_of_topics(
    shard: GroupShard, deleted: Mapping[bytes, str]
) -> Iterator[tuple[OffsetKey, OffsetAndMetadata]]:
    """What is committed now for topics that are gone, by their ids, whatever becomes of it until it is looked at. What
    was committed for a new topic of the same name is none of it."""
    names = set(deleted.values())
    found = [
        (group_id, name, dict(topics[name]))
        for group_id, topics in shard.offsets.items()
        for name in names & topics.keys()
    ]
    return (
        (OffsetKey(group_id, name, partition), value)
        for group_id, name, partitions in found
        for partition, value in partitions.items()
        if not value.topic_id or value.topic_id in deleted
    )


def delete_offsets(
    shard: GroupShard, offsets: Iterable[tuple[OffsetKey, OffsetAndMetadata]], decision: Decision
) -> None:
    """Delete `offsets`, but for what has been committed anew since they were found, or may yet be."""
    for key, value in offsets:
        is_as_found = shard.offset_of(key) == value
        if is_as_found and not shard.pending.has(key):
            decision.records.append(OffsetRecord(*key, value=None))


def _left_over(shard: GroupShard) -> Iterator[tuple[OffsetKey, OffsetAndMetadata]]:
    """What is committed for topics that are gone, and was not deleted with them: the partition was not served just
    then, its log took no writes, or a transaction had another offset there. Nobody is told of it meanwhile."""
    if not shard.consumers.topics.image.deleted_topics:
        return
    for group_id, topics in shard.offsets.items():
        for name, partitions in topics.items():
            for partition, value in partitions.items():
                key = OffsetKey(group_id, name, partition)
                if shard.is_deleted(value.topic_id) and not shard.pending.has(key):
                    yield key, value


def _expire_group(shard: GroupShard, group: Group, decision: Decision) -> None:
    offsets = shard.offsets.get(group.group_id, {})
    expired = list(_expired(shard, group, decision.now_ms))
    decision.records.extend(expired)
    decision.offsets_expired += len(expired)
    all_gone = len(expired) == sum(len(partitions) for partitions in offsets.values())
    if not all_gone or group.state is not GroupState.EMPTY or group.pending_members:
        return
    if shard.pending.has_group(group.group_id):
        return  # they may come to count
    if offsets or group.group_id in shard.stored:
        decision.records.append(GroupRecord(group.group_id, None))
    else:
        shard.remove_group(group)  # the log never knew it


def _expire_consumer_group(shard: GroupShard, group: ConsumerGroup, decision: Decision) -> None:
    """Of a group of the newer protocol the last commit counts, whether or not it has members."""
    retention_ms, group_id = shard.config.offsets_retention_ms, group.group_id
    expired, left = [], 0
    for topic, partitions in shard.offsets.get(group_id, {}).items():
        is_read = group.is_subscribed_to(topic)
        for partition, value in partitions.items():
            is_over = not is_read and _is_expired(value, _time_of_commit, decision.now_ms, retention_ms)
            if is_over and not shard.pending.has(OffsetKey(group_id, topic, partition)):
                expired.append(OffsetRecord(group_id, topic, partition, None))
            else:
                left += 1
    decision.records.extend(expired)
    decision.offsets_expired += len(expired)
    if not left and not group.members and not shard.pending.has_group(group_id):
        decision.records += group_tombstones(group)


def _time_of_commit(value: OffsetAndMetadata) -> int:
    return value.commit_timestamp_ms


def _expired(shard: GroupShard, group: Group, now_ms: int) -> list[OffsetRecord]:
    starts_at = _retention_start(group)
    if starts_at is None:
        return []
    subscribed = subscribed_topics(group) if group.members else frozenset()
    if subscribed is None:
        return []
    retention_ms = shard.config.offsets_retention_ms
    return [
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partitions in shard.offsets.get(group.group_id, {}).items()
        if topic not in subscribed
        for partition, value in partitions.items()
        if _is_expired(value, starts_at, now_ms, retention_ms)
        and not shard.pending.has(OffsetKey(group.group_id, topic, partition))
    ]


def _is_expired(
    value: OffsetAndMetadata, starts_at: Callable[[OffsetAndMetadata], int], now_ms: int, retention_ms: int
) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - starts_at(value) >= retention_ms


def _retention_start(group: Group) -> Callable[[OffsetAndMetadata], int] | None:
    """From when an offset's retention counts (ms since the epoch); None while nothing may expire."""
    if group.protocol_type is None:
        return lambda value: value.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        emptied_ms = group.state_timestamp_ms
        if emptied_ms == NO_TIMESTAMP:
            return lambda value: value.commit_timestamp_ms
        return lambda _: emptied_ms
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return lambda value: value.commit_timestamp_ms
    return None


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that members of a consumer group subscribe to; None when some subscription cannot be read."""
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_topics(member.metadata_for(group.protocol)))
        except Malformed:
            return None
    return frozenset(topics)
