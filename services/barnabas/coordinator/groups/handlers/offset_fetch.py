"""OffsetFetch (key 9) for one group. The empty group id is allowed, as Kafka does for old clients."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.fetch import handle_fetch
from barnabas.coordinator.groups.handlers import Handler
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import OffsetFetchRequest, OffsetFetchResponse


async def _handle(coordinator: GroupCoordinator, request: OffsetFetchRequest) -> OffsetFetchResponse:
    runtime = coordinator.runtime_of(request.group_id)
    response: OffsetFetchResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_fetch(shard, request, waiter, decision), writes=False
    )
    return response


def _refuse(_: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    # Consumers before 3.9 do not know COORDINATOR_NOT_AVAILABLE here.
    if error.code is ErrorCode.coordinator_not_available:
        return OffsetFetchResponse(error_code=ErrorCode.coordinator_load_in_progress)
    return OffsetFetchResponse(error_code=error.code)


OFFSET_FETCH = Handler("OffsetFetch", _handle, _refuse)
