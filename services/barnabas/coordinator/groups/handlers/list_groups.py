"""ListGroups (key 16): all groups that this coordinator owns."""

from __future__ import annotations

import asyncio

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.describe import list_groups
from barnabas.coordinator.groups.handlers import Handler
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import ListGroupsRequest, ListGroupsResponse


async def _handle(coordinator: GroupCoordinator, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.strip().lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    response = ListGroupsResponse()
    runtimes = coordinator.partitions.runtimes()
    await asyncio.gather(*(runtime.load_times.wait_for_first() for runtime in runtimes))
    for runtime in runtimes:
        try:
            response.groups.extend(list_groups(runtime.shard, states, types))
        except KafkaError as error:
            # What is loaded is listed; the code says that there may be more.
            if error.code is ErrorCode.coordinator_load_in_progress:
                response.error_code = error.code
        await asyncio.sleep(0)  # where there are many groups, others do not wait for all of them
    return response


def _refuse(_: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)


LIST_GROUPS = Handler("ListGroups", _handle, _refuse)
