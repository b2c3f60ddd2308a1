"""Heartbeat: a member is alive, and learns whether it must join again."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.classic_members import heartbeat_in_consumer_group
from barnabas.coordinator.groups.core.answers import refuse_heartbeat
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
    write, and a slow disk costs nobody's membership. That somebody is none, only the group's owner says.
    """
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        heartbeat_in_consumer_group(shard, consumer_group, request, waiter, decision)
        return
    group = shard.groups.get(request.group_id)
    code = ErrorCode.unknown_member_id if group is None else _refusal(group, request)
    if group is None or code is not ErrorCode.none:
        refuse_heartbeat(code, waiter, decision)
        return
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
