"""JoinGroup of a static member that restarted: it has its group.instance.id but no member id (KIP-345, KIP-814)."""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.answers import join_error, joined, sync_error
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.rebalance import (
    complete_join_if_everyone_joined,
    prepare_rebalance,
    rebalance_or_complete,
)
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard, session_of
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.groups.core.waiting import park_join, protocols_of
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import JoinGroupRequest, JoinGroupResponse


def join_known_instance(
    shard: GroupShard,
    group: Group,
    request: JoinGroupRequest,
    member_id: str,
    waiter: Waiter,
    decision: Decision,
) -> None:
    """Give the instance the new `member_id`, fence the old one, and rebalance only where it cannot be avoided."""
    instance_id = request.group_instance_id
    old_leader = group.leader
    old_member_id = group.static_members[instance_id]
    if _is_too_large(group, request, old_member_id):
        decision.note("the group would be too large to be stored", group_id=group.group_id)
        code = ErrorCode.unknown_server_error
        decision.refuse(waiter, code, join_error(code))
        return
    _fence(shard, group, old_member_id, decision)
    member = group.replace_static_member(instance_id, member_id)
    group.update_protocols(member, protocols_of(request))
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    shard.start_session(group, member, decision)
    decision.note(
        "static member replaced",
        group_id=group.group_id,
        instance_id=instance_id,
        old_member_id=old_member_id,
        member_id=member_id,
    )
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        # Nothing changes but the member's id: the generation and its assignment stand. The log must know the id
        # before the member does.
        decision.records.append(GroupRecord(group.group_id, group.to_stored()))
        decision.reply(waiter, _rejoined(group, request, member_id, old_leader))
        return
    park_join(group, member_id, waiter, decision)
    if group.state is GroupState.STABLE:
        reason = f"the protocol changes with static member {instance_id}"
        rebalance_or_complete(shard, group, decision, reason)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may have been told the old id already; its assignment would miss the new one.
        prepare_rebalance(shard, group, decision, f"static member {instance_id} came back with a new id")
    else:
        complete_join_if_everyone_joined(shard, group, decision)


def _is_too_large(group: Group, request: JoinGroupRequest, old_member_id: str) -> bool:
    """Whether the generation that stands could not be stored with what the member says now."""
    if group.state is not GroupState.STABLE:
        return False  # there will be another one, which SyncGroup measures
    now = dict(protocols_of(request)).get(group.protocol or "", b"")
    grown = len(now) - len(group.members[old_member_id].metadata_for(group.protocol))
    return group.record_bytes() + grown > limits.GROUP_RECORD_BYTES_MAX


def _rejoined(
    group: Group, request: JoinGroupRequest, member_id: str, old_leader: str | None
) -> JoinGroupResponse:
    if request.supports_skipping_assignment:
        return joined(group, member_id, skip_assignment=member_id == group.leader)
    # A client from before KIP-814 would compute an assignment if it learnt that it leads: name the old id.
    return joined(group, member_id, leader=old_leader, with_members=False)


def _fence(shard: GroupShard, group: Group, member_id: str, decision: Decision) -> None:
    code = ErrorCode.fenced_instance_id
    join_waiter = group.joining.pop(member_id, None)
    if join_waiter is not None:
        decision.refuse(join_waiter, code, join_error(code, member_id))
    sync_waiter = group.syncing.pop(member_id, None)
    if sync_waiter is not None:
        decision.refuse(sync_waiter, code, sync_error(code))
    shard.timers.cancel(session_of(group, member_id))
