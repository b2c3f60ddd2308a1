"""DeleteGroups (key 42): groups without members and their offsets, each at its own coordinator (KIP-229).

v2 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.group_calls import call_coordinators
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import DeletedGroup, DeleteGroupsRequest
from barnabas.metadata.leaders import NOBODY_COORDINATES

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink


async def handle(request: Request) -> Answer:
    async with Gathered(request) as gathered:
        deleted = await call_coordinators(request, gathered, request.body.groups_names, _delete, _refused)
    return {
        "results": [
            {"group_id": group_id, "error_code": result.error_code} for group_id, result in deleted.items()
        ]
    }


async def _delete(
    coordinator: CoordinatorLink, group_ids: list[str], seconds: float
) -> Sequence[DeletedGroup]:
    response = await coordinator.DeleteGroups(DeleteGroupsRequest(group_ids=group_ids), timeout=seconds)
    return response.groups


def _refused(group_id: str, code: ErrorCode) -> DeletedGroup:
    return DeletedGroup(group_id=group_id, error_code=code)


HANDLER = Handler(api_key=42, versions=(0, 2), handle=handle, unanswered=NOBODY_COORDINATES)
