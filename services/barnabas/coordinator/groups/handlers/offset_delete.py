"""OffsetDelete (key 47)."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.delete import handle_offset_delete
from barnabas.coordinator.groups.handlers import Handler, check_group_id
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import OffsetDeleteRequest, OffsetDeleteResponse


async def _handle(coordinator: GroupCoordinator, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    check_group_id(request.group_id)
    runtime = coordinator.runtime_of(request.group_id)
    response: OffsetDeleteResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_offset_delete(shard, request, waiter, decision)
    )
    return response


def _refuse(_: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


OFFSET_DELETE = Handler("OffsetDelete", _handle, _refuse)
