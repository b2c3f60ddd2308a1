"""ListGroups (key 16): the groups that a broker coordinates, for tools that ask all brokers.

v4 adds states and a filter on them (KIP-518), v5 types and a filter on those (KIP-848). As FindCoordinator names the
leader of a group's partition of __consumer_offsets, that broker's port lists the group and the others' do not; where
one broker stands for all, it lists all.
"""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.inside.by_coordinator import is_shown_here, not_answered
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
from barnabas.messages.coordinator_pb2 import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.metadata.image import GROUP_METADATA_TOPIC
from barnabas.metadata.leaders import NOBODY_COORDINATES


async def handle(request: Request) -> Answer:
    message = ListGroupsRequest(
        states=request.get("states_filter", ()), types=request.get("types_filter", ())
    )
    addresses = sorted(coordinator.address for coordinator in request.image.coordinators.values())
    responses = await asyncio.gather(*(_ask(request, address, message) for address in addresses))
    # Some group may be missing from the list where one coordinator failed: clients retry on its code.
    errors = [response.error_code for response in responses if response.error_code]
    groups = {
        group.group_id: group
        for response in responses
        for group in response.groups
        if is_shown_here(request, GROUP_METADATA_TOPIC, group.group_id)
    }
    return {
        "error_code": errors[0] if errors else ErrorCode.none,
        "groups": [_answer(group) for _, group in sorted(groups.items())],
    }


async def _ask(request: Request, address: str, message: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = request.parts.links.coordinator_at(address)
    try:
        return await coordinator.ListGroups(message, timeout=limits.CALL_TIMEOUT_SECONDS)
    except LinkError as error:
        return ListGroupsResponse(error_code=not_answered(request, error))


def _answer(group: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.type,
    }


HANDLER = Handler(api_key=16, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
