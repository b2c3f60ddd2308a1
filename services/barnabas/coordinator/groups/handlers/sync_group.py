"""SyncGroup (key 14)."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.answers import sync_error
from barnabas.coordinator.groups.core.sync import handle_sync
from barnabas.coordinator.groups.handlers import check_group_id
from barnabas.coordinator.runtime.handler import Submission, submitting
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import SyncGroupRequest, SyncGroupResponse


def _submission(coordinator: GroupCoordinator, request: SyncGroupRequest) -> Submission:
    check_group_id(request.group_id)
    return Submission(
        coordinator.runtime_of(request.group_id),
        lambda shard, waiter, decision: handle_sync(shard, request, waiter, decision),
    )


def _refuse(_: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    # Clients do not look for COORDINATOR_LOAD_IN_PROGRESS here. The generation is in doubt: have them join again.
    if error.code is ErrorCode.coordinator_load_in_progress:
        return sync_error(ErrorCode.rebalance_in_progress)
    return sync_error(error.code)


SYNC_GROUP = submitting("SyncGroup", _submission, _refuse)
