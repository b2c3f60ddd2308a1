"""Heartbeat (key 12)."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.heartbeat import handle_heartbeat
from barnabas.coordinator.groups.handlers import check_group_id
from barnabas.coordinator.runtime.handler import Submission, submitting
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import HeartbeatRequest, HeartbeatResponse


def _submission(coordinator: GroupCoordinator, request: HeartbeatRequest) -> Submission:
    check_group_id(request.group_id)
    return Submission(
        coordinator.runtime_of(request.group_id),
        lambda shard, waiter, decision: handle_heartbeat(shard, request, waiter, decision),
        writes=False,
        is_brief=True,
    )


def _refuse(_: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    # While the group is being loaded nobody's session runs out, so the member need not do anything.
    if error.code is ErrorCode.coordinator_load_in_progress:
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)


HEARTBEAT = submitting("Heartbeat", _submission, _refuse)
