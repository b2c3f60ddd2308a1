"""LeaveGroup: members go, by themselves or removed by an administrator (KIP-345)."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.classic_members import leave_consumer_group
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.rebalance import (
    complete_join_if_everyone_joined,
    prepare_rebalance,
    remove_member,
)
from barnabas.coordinator.groups.core.shard import GroupShard, session_of
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import LeaveGroupRequest, LeaveGroupResponse, LeavingMember, LeftMember


def handle_leave(shard: GroupShard, request: LeaveGroupRequest, waiter: Waiter, decision: Decision) -> None:
    """Take each member out, then rebalance once."""
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        leave_consumer_group(shard, consumer_group, request, waiter, decision)
        return
    group = shard.groups.get(request.group_id)
    left = []
    for leaving in request.members:
        code = ErrorCode.unknown_member_id if group is None else _leave(shard, group, leaving, decision)
        instance_id = leaving.group_instance_id if leaving.HasField("group_instance_id") else None
        left.append(LeftMember(member_id=leaving.member_id, group_instance_id=instance_id, error_code=code))
    decision.reply(waiter, LeaveGroupResponse(members=left))
    gone = [member.member_id or member.group_instance_id for member in left if member.error_code == 0]
    if group is None or not gone:
        return
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(shard, group, decision, f"{', '.join(gone)} left")
    else:
        complete_join_if_everyone_joined(shard, group, decision)


def _leave(shard: GroupShard, group: Group, leaving: LeavingMember, decision: Decision) -> ErrorCode:
    member_id = leaving.member_id
    instance_id = leaving.group_instance_id if leaving.HasField("group_instance_id") else None
    if not member_id:
        # An administrator names the instance only.
        known = group.static_members.get(instance_id) if instance_id is not None else None
        if known is None:
            return ErrorCode.unknown_member_id
        member_id = known
    elif member_id in group.pending_members:
        group.pending_members.discard(member_id)
        shard.timers.cancel(session_of(group, member_id))
        return ErrorCode.none
    else:
        code = group.validate_member(member_id, instance_id)
        if code is not ErrorCode.none:
            return code
    remove_member(shard, group, member_id, decision)
    decision.note(
        "member left", group_id=group.group_id, member_id=member_id, reason=leaving.reason or "not provided"
    )
    return ErrorCode.none
