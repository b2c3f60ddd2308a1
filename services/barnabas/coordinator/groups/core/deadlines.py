"""What happens without a request: a partition starts to serve, a group starts afresh, and time passes."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordinator.groups.consumer.core.deadlines import (
    CONSUMER_DEADLINES,
    anew_at_ms,
    bring_to_life,
    on_consumer_deadlines,
    spare,
)
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.expiry import on_expiration_deadline, schedule_expiry
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.rebalance import (
    on_join_deadline,
    on_session_deadline,
    on_sync_deadline,
    prepare_rebalance,
)
from barnabas.coordinator.groups.core.records import GroupLogRecord, MarkerRecord, StoredGroup
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind


def on_loaded(shard: GroupShard, decision: Decision) -> None:
    """The log has been replayed: bring its groups to life and give every member a session from now on."""
    for group_id, stored in shard.stored.items():
        _bring_to_life(shard, group_id, stored, decision)
    for group in shard.consumers.groups.values():
        bring_to_life(shard, group, decision)
    schedule_expiry(shard, decision)


def start_afresh(shard: GroupShard, records: Sequence[GroupLogRecord], decision: Decision) -> list[Waiter]:
    """The groups of `records`, which could not be written, become what the log says; returns who waited in them."""
    waiters: list[Waiter] = []
    about = (record.group_id for record in records if not isinstance(record, MarkerRecord))
    for group_id in dict.fromkeys(about):
        consumer_group = shard.consumers.get(group_id)
        if consumer_group is not None:
            bring_to_life(shard, consumer_group, decision)
        group = shard.groups.pop(group_id, None)
        if group is None:
            continue
        waiters += [*group.joining.values(), *group.syncing.values()]
        shard.cancel_timers(group)
        if group_id in shard.stored:
            _bring_to_life(shard, group_id, shard.stored[group_id], decision)
        elif shard.has_offsets(group_id) and consumer_group is None:
            shard.groups[group_id] = Group(group_id)
    return waiters


def _bring_to_life(shard: GroupShard, group_id: str, stored: StoredGroup, decision: Decision) -> None:
    group = Group.restore(group_id, stored)
    shard.groups[group_id] = group
    for member in group.members.values():
        shard.start_session(group, member, decision)
    if len(group.members) > shard.config.group_max_size:
        prepare_rebalance(shard, group, decision, "the group is larger than group.max.size")
    elif group.members and stored.leader is None:
        prepare_rebalance(shard, group, decision, "no leader has shared out what its members are to have")


def on_time(shard: GroupShard, decision: Decision) -> None:
    """Handle the deadlines that are due at the decision's monotonic time, earliest first."""
    of_consumers = []
    while (deadline := shard.timers.pop_due(decision.monotonic_ms)) is not None:
        if deadline.kind is DeadlineKind.EXPIRATION:
            on_expiration_deadline(shard, decision)
            continue
        if deadline.kind in CONSUMER_DEADLINES:
            of_consumers.append(deadline)
            continue
        group = shard.groups.get(deadline.group_id)
        if group is None:
            continue
        match deadline.kind:
            case DeadlineKind.SESSION:
                on_session_deadline(shard, group, deadline.member_id, decision)
            case DeadlineKind.JOIN:
                on_join_deadline(shard, group, decision)
            case DeadlineKind.SYNC:
                on_sync_deadline(shard, group, decision)
    on_consumer_deadlines(shard, of_consumers, decision)


def on_resumed(shard: GroupShard, decision: Decision) -> None:
    """The log takes writes again: what was due while it took none starts anew from now, and what is due soon waits for
    members to come again.

    Nothing was decided in that time, and members that wanted to join or commit were sent away, so that their silence is
    none of their fault.
    """
    due = []
    while (deadline := shard.timers.pop_due(decision.monotonic_ms)) is not None:
        due.append(deadline)
    for deadline in due:
        if deadline.kind is DeadlineKind.EXPIRATION:
            schedule_expiry(shard, decision)
            continue
        if deadline.kind in CONSUMER_DEADLINES:
            at_ms = anew_at_ms(shard, deadline, decision)
            if at_ms is not None:
                shard.timers.schedule(deadline, at_ms)
            continue
        group = shard.groups.get(deadline.group_id)
        if group is not None:
            again_in_ms = _time_anew_ms(shard, group, deadline)
            shard.timers.schedule(deadline, decision.monotonic_ms + again_in_ms)
    for consumer_group in shard.consumers.groups.values():
        spare(shard, consumer_group, decision)


def _time_anew_ms(shard: GroupShard, group: Group, deadline: Deadline) -> int:
    if deadline.kind is DeadlineKind.SESSION:
        member = group.members.get(deadline.member_id)
        # A member that is to come back with its first member id has none yet, and named no other timeout.
        return shard.config.group_min_session_timeout_ms if member is None else member.session_timeout_ms
    if deadline.kind is DeadlineKind.JOIN and group.initial_rebalance is not None:
        return group.initial_rebalance.delay_ms
    return group.rebalance_timeout_ms()
