"""Deadlines of consumer groups: when they are, and what happens when they have come.

The session runs from each heartbeat to the next. The rebalance timeout runs while a member has not said that it gave up
what it was asked to. Members that speak the classic protocol have two more: to join again once they were told that
there is a rebalance, and then to ask for their assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.coordinator.groups.consumer.core.fencing import fence_members
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import MemberState
from barnabas.coordinator.groups.consumer.core.regexes import resolve_next
from barnabas.coordinator.groups.consumer.core.timers import (
    join_of,
    rebalance_of,
    rebalance_timeout_ms,
    session_of,
    session_timeout_ms,
    start_session,
    sync_of,
)
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind

CONSUMER_DEADLINES: Final = frozenset(
    (
        DeadlineKind.CONSUMER_SESSION,
        DeadlineKind.CONSUMER_REBALANCE,
        DeadlineKind.CONSUMER_JOIN,
        DeadlineKind.CONSUMER_SYNC,
        DeadlineKind.REGEX,
    )
)

_HEARTBEATS_SPARED: Final = 2
"""How many heartbeats a member can send, once the log takes writes again, before it is out for what was sent away."""

_REASONS: Final = {
    DeadlineKind.CONSUMER_SESSION: "it was silent for its session timeout",
    DeadlineKind.CONSUMER_REBALANCE: "it did not give partitions up in time",
    DeadlineKind.CONSUMER_JOIN: "it did not join again in time",
    DeadlineKind.CONSUMER_SYNC: "it did not ask for its assignment in time",
}


def bring_to_life(shard: GroupShard, group: ConsumerGroup, decision: Decision) -> None:
    """Give every member its session from now on, and its time to give partitions up."""
    group.needs_refresh = True
    for member in group.members.values():
        start_session(shard, group.group_id, member, decision)
        if is_revoking(member):
            at_ms = decision.monotonic_ms + rebalance_timeout_ms(member)
            shard.timers.schedule(rebalance_of(group.group_id, member.member_id), at_ms)


def is_revoking(member: Member) -> bool:
    """Whether it is to give partitions up, and its time for that runs."""
    return (
        member.current.state is MemberState.UNREVOKED_PARTITIONS
        and not member.is_classic
        and not member.has_left_for_a_while
    )


def on_consumer_deadlines(shard: GroupShard, due: Sequence[Deadline], decision: Decision) -> None:
    """These of CONSUMER_DEADLINES are due.

    Of a group all members go together: what is decided of one would rest on the records about the other, which are not
    replayed yet. For the same reason a look for topics then waits for its next turn.
    """
    leaving: dict[str, dict[str, Member]] = {}
    for deadline in due:
        group = shard.consumers.get(deadline.group_id)
        if group is not None and deadline.kind is not DeadlineKind.REGEX:
            member = _overdue(group, deadline)
            if member is not None:
                leaving.setdefault(group.group_id, {})[member.member_id] = member
                decision.note(
                    "member removed",
                    group_id=group.group_id,
                    member_id=member.member_id,
                    reason=_REASONS[deadline.kind],
                )
    for group_id, members in leaving.items():
        fence_members(shard, shard.consumers.groups[group_id], list(members.values()), decision)
    for deadline in due:
        group = shard.consumers.get(deadline.group_id)
        if group is None or deadline.kind is not DeadlineKind.REGEX:
            continue
        if deadline.group_id in leaving:
            shard.timers.schedule(deadline, decision.monotonic_ms + 1)
        else:
            resolve_next(shard, group, decision)


def _overdue(group: ConsumerGroup, deadline: Deadline) -> Member | None:
    """Who missed it; nobody where it is about nothing any more."""
    member = group.members.get(deadline.member_id)
    if member is not None and deadline.kind is DeadlineKind.CONSUMER_REBALANCE and not is_revoking(member):
        return None
    return member


def spare(shard: GroupShard, group: ConsumerGroup, decision: Decision) -> None:
    """Heartbeats and joins were sent away for a while: who kept no deadline for that gets the time to keep it now. No
    more than that, or else who is gone would never be out where the log stumbles again and again."""
    for member_id in group.members:
        spare_member(shard, group, member_id, decision)


def spare_member(shard: GroupShard, group: ConsumerGroup, member_id: str, decision: Decision) -> None:
    """The same for one of them."""
    interval_ms = shard.consumers.times_of(group.group_id).heartbeat_interval_ms
    soonest_ms = decision.monotonic_ms + _HEARTBEATS_SPARED * interval_ms
    for deadline_of in (session_of, rebalance_of, join_of, sync_of):
        deadline = deadline_of(group.group_id, member_id)
        at_ms = shard.timers.time_of(deadline)
        if at_ms is not None and at_ms < soonest_ms:
            shard.timers.schedule(deadline, soonest_ms)


def anew_at_ms(shard: GroupShard, deadline: Deadline, decision: Decision) -> int | None:
    """When a deadline is due that starts anew now; None for one that is about nothing any more."""
    group = shard.consumers.get(deadline.group_id)
    if group is None:
        return None
    if deadline.kind is DeadlineKind.REGEX:
        return decision.monotonic_ms
    member = group.members.get(deadline.member_id)
    if member is None:
        return None
    if deadline.kind is DeadlineKind.CONSUMER_SESSION:
        return decision.monotonic_ms + session_timeout_ms(shard, group.group_id, member)
    return decision.monotonic_ms + rebalance_timeout_ms(member)
