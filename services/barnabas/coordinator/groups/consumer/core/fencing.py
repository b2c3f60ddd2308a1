"""Members are taken out of a group: they left, were silent for too long, or kept what they were to give up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from barnabas.coordinator.groups.consumer.core.conversion import downgrade, may_downgrade
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import GroupEpoch, GroupEpochRecord, RegexRecord
from barnabas.coordinator.groups.consumer.core.timers import cancel_timers
from barnabas.coordinator.groups.consumer.core.tombstones import member_tombstones
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard


def fence_members(
    shard: GroupShard, group: ConsumerGroup, members: Sequence[Member], decision: Decision
) -> None:
    """Take them out; what they had is somebody else's when a heartbeat of his finds the new epoch."""
    if not members:
        return
    if may_downgrade(shard, group, members) and _downgrade(shard, group, members, decision):
        return
    group_id = group.group_id
    for member in members:
        decision.records += member_tombstones(group_id, member.member_id)
    gone = Counter(member.metadata.topic_regex for member in members)
    decision.records += [
        RegexRecord(group_id, regex, None)
        for regex, count in gone.items()
        if regex in group.resolved and group.regexes[regex] == count
    ]
    topics = group.subscribed_topics(without=members)
    epoch = GroupEpoch(group.epoch + 1, shard.consumers.topics.hash_of(topics))
    decision.records.append(GroupEpochRecord(group_id, epoch))
    for member in members:
        cancel_timers(shard, group_id, member.member_id)


def _downgrade(
    shard: GroupShard, group: ConsumerGroup, leaving: Sequence[Member], decision: Decision
) -> bool:
    """Nobody is left who speaks the newer protocol: the others are a classic group from now on."""
    gone = {member.member_id for member in leaving}
    left = [
        (member, group.target_of(member_id))
        for member_id, member in group.members.items()
        if member_id not in gone
    ]
    return downgrade(shard, group, left, decision, "the last member of the newer protocol is gone")
