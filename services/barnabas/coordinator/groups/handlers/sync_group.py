"""SyncGroup (key 14)."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.answers import sync_error
from barnabas.coordinator.groups.core.sync import handle_sync
from barnabas.coordinator.groups.handlers import Handler, check_group_id
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import SyncGroupRequest, SyncGroupResponse


async def _handle(coordinator: GroupCoordinator, request: SyncGroupRequest) -> SyncGroupResponse:
    check_group_id(request.group_id)
    runtime = coordinator.runtime_of(request.group_id)
    response: SyncGroupResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_sync(shard, request, waiter, decision)
    )
    return response


def _refuse(_: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    # Clients do not look for COORDINATOR_LOAD_IN_PROGRESS here. The generation is in doubt: have them join again.
    if error.code is ErrorCode.coordinator_load_in_progress:
        return sync_error(ErrorCode.rebalance_in_progress)
    return sync_error(error.code)


SYNC_GROUP = Handler("SyncGroup", _handle, _refuse)
