"""The deadlines that members of consumer groups have, by name, and how long they run."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind


def session_of(group_id: str, member_id: str) -> Deadline:
    """The end of a member's session."""
    return Deadline(DeadlineKind.CONSUMER_SESSION, group_id, member_id)


def rebalance_of(group_id: str, member_id: str) -> Deadline:
    """The end of a member's time to give partitions up."""
    return Deadline(DeadlineKind.CONSUMER_REBALANCE, group_id, member_id)


def join_of(group_id: str, member_id: str) -> Deadline:
    """The end of a classic member's time to join again."""
    return Deadline(DeadlineKind.CONSUMER_JOIN, group_id, member_id)


def sync_of(group_id: str, member_id: str) -> Deadline:
    """The end of a classic member's time to ask for its assignment."""
    return Deadline(DeadlineKind.CONSUMER_SYNC, group_id, member_id)


def regex_of(group_id: str) -> Deadline:
    """The next step of the look for topics that match the group's regular expressions."""
    return Deadline(DeadlineKind.REGEX, group_id)


def session_timeout_ms(shard: GroupShard, group_id: str, member: Member) -> int:
    """How long the member may be silent: the group's time, or what a classic member asked for itself."""
    classic = member.metadata.classic
    return (
        shard.consumers.times_of(group_id).session_timeout_ms
        if classic is None
        else classic.session_timeout_ms
    )


def rebalance_timeout_ms(member: Member) -> int:
    """How long the member may take to give partitions up."""
    return max(member.metadata.rebalance_timeout_ms, 0)


def start_session(shard: GroupShard, group_id: str, member: Member, decision: Decision) -> None:
    """Give the member its session timeout from now on."""
    at_ms = decision.monotonic_ms + session_timeout_ms(shard, group_id, member)
    shard.timers.schedule(session_of(group_id, member.member_id), at_ms)


def take_deadlines_over(shard: GroupShard, group: ConsumerGroup, member: Member) -> None:
    """The member is in, as it is now, and the group not replayed yet: nobody waits any more for who had its instance
    id, or for steps of a protocol that it does not speak."""
    group_id, instance_id = group.group_id, member.metadata.instance_id
    replaced_id = None if instance_id is None else group.static_members.get(instance_id)
    if replaced_id is not None and replaced_id != member.member_id:
        cancel_timers(shard, group_id, replaced_id)
    if member.is_classic:
        shard.timers.cancel(rebalance_of(group_id, member.member_id))
    else:
        shard.timers.cancel(join_of(group_id, member.member_id))
        shard.timers.cancel(sync_of(group_id, member.member_id))


def cancel_timers(shard: GroupShard, group_id: str, member_id: str) -> None:
    """The member is out."""
    for deadline_of in (session_of, rebalance_of, join_of, sync_of):
        shard.timers.cancel(deadline_of(group_id, member_id))
