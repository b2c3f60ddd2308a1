"""LeaveGroup (key 13)."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.leave import handle_leave
from barnabas.coordinator.groups.handlers import Handler, check_group_id
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import LeaveGroupRequest, LeaveGroupResponse


async def _handle(coordinator: GroupCoordinator, request: LeaveGroupRequest) -> LeaveGroupResponse:
    check_group_id(request.group_id)
    runtime = coordinator.runtime_of(request.group_id)
    response: LeaveGroupResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_leave(shard, request, waiter, decision)
    )
    return response


def _refuse(_: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


LEAVE_GROUP = Handler("LeaveGroup", _handle, _refuse)
