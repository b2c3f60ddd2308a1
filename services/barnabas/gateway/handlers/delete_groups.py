"""DeleteGroups (key 42): groups without members and their offsets, each at its own coordinator (KIP-229).

v2 is flexible.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.inside.group_calls import call_coordinator
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.messages.coordinator_pb2 import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES


async def handle(request: Request) -> Answer:
    group_ids = dict.fromkeys(request.body.groups_names)
    deleted = await asyncio.gather(*(_delete(request, group_id) for group_id in group_ids))
    return {
        "results": [
            {"group_id": group_id, "error_code": result.error_code}
            for group_id, result in zip(group_ids, deleted, strict=True)
        ]
    }


async def _delete(request: Request, group_id: str) -> DeletedGroup:
    message = DeleteGroupsRequest(group_ids=[group_id])
    response = await call_coordinator(
        request,
        group_id,
        lambda coordinator: coordinator.DeleteGroups(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: DeleteGroupsResponse(groups=[DeletedGroup(group_id=group_id, error_code=code)]),
    )
    (deleted,) = response.groups
    return deleted


HANDLER = Handler(api_key=42, versions=(0, 2), handle=handle, unanswered=NOBODY_COORDINATES)
