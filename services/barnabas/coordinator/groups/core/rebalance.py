"""From one generation to the next: ask everybody to join again, wait, start the generation.

Eager and cooperative assignors look the same from here: what they exchange is opaque, only who joined counts.
"""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.answers import join_error, joined, sync_error
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.group import Group, InitialRebalance
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard, join_of, session_of, sync_of
from barnabas.coordinator.groups.core.states import GroupEvent, GroupState
from barnabas.kernel.errors import ErrorCode


def rebalance_or_complete(shard: GroupShard, group: Group, decision: Decision, reason: str) -> None:
    """Start a rebalance, or, in the middle of one, finish its join phase if everyone is there by now."""
    if group.can(GroupEvent.REBALANCE_NEEDED):
        prepare_rebalance(shard, group, decision, reason)
    else:
        complete_join_if_everyone_joined(shard, group, decision)


def prepare_rebalance(shard: GroupShard, group: Group, decision: Decision, reason: str) -> None:
    """Have all members join again; those waiting for an assignment are sent back."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        _send_back_syncing(shard, group, decision)
    group.pending_sync.clear()
    shard.timers.cancel(sync_of(group))
    from_empty = group.state is GroupState.EMPTY
    group.apply_event(GroupEvent.REBALANCE_NEEDED, decision.now_ms)
    decision.note(
        "preparing rebalance", group_id=group.group_id, old_generation=group.generation, reason=reason
    )
    if from_empty:
        _wait_for_more_members(shard, group, decision)
    elif group.has_everyone_joined():
        complete_join(shard, group, decision)
    else:
        shard.timers.schedule(join_of(group), decision.monotonic_ms + group.rebalance_timeout_ms())


def _wait_for_more_members(shard: GroupShard, group: Group, decision: Decision) -> None:
    delay_ms = shard.config.group_initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
    group.initial_rebalance = InitialRebalance(delay_ms, remaining_ms)
    shard.timers.schedule(join_of(group), decision.monotonic_ms + delay_ms)


def on_join_deadline(shard: GroupShard, group: Group, decision: Decision) -> None:
    """Members had their time to join. A new group waits again while members keep coming, within limits."""
    initial = group.initial_rebalance
    if initial is None or not initial.member_added or initial.remaining_ms == 0:
        complete_join(shard, group, decision)
        return
    delay_ms = min(shard.config.group_initial_rebalance_delay_ms, initial.remaining_ms)
    remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
    group.initial_rebalance = InitialRebalance(delay_ms, remaining_ms)
    shard.timers.schedule(join_of(group), decision.monotonic_ms + delay_ms)


def complete_join_if_everyone_joined(shard: GroupShard, group: Group, decision: Decision) -> None:
    """Finish the join phase early; never the first one of a group, which runs its full delay."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_rebalance is None
        and group.has_everyone_joined()
    ):
        complete_join(shard, group, decision)


def complete_join(shard: GroupShard, group: Group, decision: Decision) -> None:
    """Start the next generation with those who joined; dynamic members that did not are out.

    Static members stay without joining (KIP-345). When nobody at all joined there is no one to lead, so the phase
    is prolonged until sessions end.
    """
    shard.timers.cancel(join_of(group))
    absent = [
        member.member_id
        for member in group.members.values()
        if member.member_id not in group.joining and member.group_instance_id is None
    ]
    for member_id in absent:
        remove_member(shard, group, member_id, decision)
    if absent:
        decision.note("removed members that did not rejoin", group_id=group.group_id, members=absent)
    if group.members and not _elect_leader_who_joined(group):
        decision.note("rebalance prolonged, no member rejoined", group_id=group.group_id)
        # A time-out of nothing, which a client may ask for, would be over in this very decision, again and again.
        again_ms = max(group.rebalance_timeout_ms(), limits.REBALANCE_PROLONGED_MS_MIN)
        shard.timers.schedule(join_of(group), decision.monotonic_ms + again_ms)
        return
    group.initial_rebalance = None
    group.generation += 1
    group.pending_sync.clear()
    if group.members:
        _start_generation(shard, group, decision)
    else:
        group.protocol = None
        group.apply_event(GroupEvent.GENERATION_WITHOUT_MEMBERS, decision.now_ms)
        decision.records.append(GroupRecord(group.group_id, group.to_stored()))
        decision.note("group is empty", group_id=group.group_id, generation=group.generation)


def _elect_leader_who_joined(group: Group) -> bool:
    """Keep a leader who joined, else take the first member that did; False when none did."""
    if group.leader not in group.joining:
        elected = next((member_id for member_id in group.members if member_id in group.joining), None)
        if elected is None:
            return False
        group.leader = elected
    return True


def _start_generation(shard: GroupShard, group: Group, decision: Decision) -> None:
    group.protocol = group.select_protocol()
    group.apply_event(GroupEvent.GENERATION_STARTED, decision.now_ms)
    for member_id, member in group.members.items():
        waiter = group.joining.pop(member_id, None)
        if waiter is not None:
            decision.reply(waiter, joined(group, member_id))
        member.is_new = False
        shard.start_session(group, member, decision)
        group.pending_sync.add(member_id)
    shard.timers.schedule(sync_of(group), decision.monotonic_ms + group.rebalance_timeout_ms())
    decision.note(
        "generation started",
        group_id=group.group_id,
        generation=group.generation,
        members=len(group.members),
        protocol=group.protocol,
    )


def on_sync_deadline(shard: GroupShard, group: Group, decision: Decision) -> None:
    """Members that never asked for their assignment are out (KIP-41's rebalance timeout bounds this phase too)."""
    silent = sorted(group.pending_sync)
    if not silent:
        return
    for member_id in silent:
        remove_member(shard, group, member_id, decision)
    prepare_rebalance(shard, group, decision, f"no SyncGroup from {', '.join(silent)}")


def on_session_deadline(shard: GroupShard, group: Group, member_id: str, decision: Decision) -> None:
    """A member was silent too long. Waiting in JoinGroup or SyncGroup counts as being there, save for new ones."""
    if member_id in group.pending_members:
        decision.note("pending member did not return", group_id=group.group_id, member_id=member_id)
        remove_pending_member(shard, group, member_id, decision)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member_id in group.joining or member_id in group.syncing
    if waits and not member.is_new:
        return
    decision.note("member failed", group_id=group.group_id, member_id=member_id)
    remove_member(shard, group, member_id, decision)
    rebalance_after_removal(shard, group, decision, f"heartbeat of {member_id} expired")


def rebalance_after_removal(shard: GroupShard, group: Group, decision: Decision, reason: str) -> None:
    """What a session's end leads to, once the member is out."""
    if group.can(GroupEvent.REBALANCE_NEEDED) and group.state is not GroupState.EMPTY:
        prepare_rebalance(shard, group, decision, reason)
    elif group.state is GroupState.PREPARING_REBALANCE and group.has_everyone_joined():
        complete_join(shard, group, decision)


def remove_pending_member(shard: GroupShard, group: Group, member_id: str, decision: Decision) -> None:
    """Forget a member that was told its id and did not return; it may be the one that others waited for."""
    group.pending_members.discard(member_id)
    shard.timers.cancel(session_of(group, member_id))
    if group.state is GroupState.PREPARING_REBALANCE and group.has_everyone_joined():
        complete_join(shard, group, decision)


def remove_member(shard: GroupShard, group: Group, member_id: str, decision: Decision) -> None:
    """Take a member out. A call of its that waits is told UNKNOWN_MEMBER_ID, so a live client joins anew."""
    code = ErrorCode.unknown_member_id
    join_waiter = group.joining.pop(member_id, None)
    if join_waiter is not None:
        decision.refuse(join_waiter, code, join_error(code))
    sync_waiter = group.syncing.pop(member_id, None)
    if sync_waiter is not None:
        decision.refuse(sync_waiter, code, sync_error(code))
    shard.timers.cancel(session_of(group, member_id))
    group.remove_member(member_id)


def _send_back_syncing(shard: GroupShard, group: Group, decision: Decision) -> None:
    code = ErrorCode.rebalance_in_progress
    for member_id, waiter in group.syncing.items():
        decision.refuse(waiter, code, sync_error(code))
        shard.start_session(group, group.members[member_id], decision)
    group.syncing.clear()
    for member in group.members.values():
        member.assignment = b""
