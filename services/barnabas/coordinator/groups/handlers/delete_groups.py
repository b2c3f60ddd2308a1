"""DeleteGroups (key 42): each group on its own, since one may be another coordinator's or another partition's.

The empty group id is allowed, as Kafka does for old clients.
"""

from __future__ import annotations

import asyncio

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.delete import handle_delete_group
from barnabas.coordinator.groups.handlers import Handler
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse


async def _handle(coordinator: GroupCoordinator, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    deleted = await asyncio.gather(*(_delete(coordinator, group_id) for group_id in request.group_ids))
    return DeleteGroupsResponse(groups=deleted)


async def _delete(coordinator: GroupCoordinator, group_id: str) -> DeletedGroup:
    try:
        runtime = coordinator.runtime_of(group_id)
        deleted: DeletedGroup = await runtime.submit(
            lambda shard, waiter, decision: handle_delete_group(shard, group_id, waiter, decision)
        )
    except KafkaError as error:
        return _refused(group_id, error)
    return deleted


def _refused(group_id: str, error: KafkaError) -> DeletedGroup:
    return DeletedGroup(group_id=group_id, error_code=error.code)


def _refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


DELETE_GROUPS = Handler("DeleteGroups", _handle, _refuse)
