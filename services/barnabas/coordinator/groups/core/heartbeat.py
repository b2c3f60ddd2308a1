"""Heartbeat: a member is alive, and learns whether it must join again."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.classic_members import heartbeat_in_consumer_group
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import HeartbeatRequest, HeartbeatResponse


def handle_heartbeat(
    shard: GroupShard, request: HeartbeatRequest, waiter: Waiter, decision: Decision
) -> None:
    """Prolong the member's session.

    Who is a member now is not for the log to say, which knows finished generations only: so the answer waits for no
    write, and a slow disk costs nobody's membership.
    """
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        heartbeat_in_consumer_group(shard, consumer_group, request, waiter, decision)
        return
    group = shard.groups.get(request.group_id)
    code = ErrorCode.unknown_member_id if group is None else _refusal(group, request)
    if group is not None and code is ErrorCode.none:
        shard.start_session(group, group.members[request.member_id], decision)
        if group.state is GroupState.PREPARING_REBALANCE:
            code = ErrorCode.rebalance_in_progress
    decision.reply_at_once(waiter, HeartbeatResponse(error_code=code))


def _refusal(group: Group, request: HeartbeatRequest) -> ErrorCode:
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    code = group.validate_member(request.member_id, instance_id)
    if code is ErrorCode.none and request.generation_id != group.generation:
        return ErrorCode.illegal_generation
    return code
