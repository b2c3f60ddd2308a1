"""SyncGroup (key 14): the leader's assignment goes to the members, whose calls wait for it.

v3 adds static members (KIP-345), v5 the protocol's type and name (KIP-559), which a
member must say.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.inside.group_calls import LONGEST_REBALANCE_SECONDS, call_coordinator
from barnabas.gateway.limits import JOIN_GRACE_SECONDS
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_PROTOCOL_FROM: Final = 5


async def handle(request: Request) -> Answer:
    body = request.body
    if request.version >= _PROTOCOL_FROM and (body.protocol_type is None or body.protocol_name is None):
        return {"error_code": ErrorCode.inconsistent_group_protocol}
    message = SyncGroupRequest(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=request.get("group_instance_id", None),
        protocol_type=request.get("protocol_type", None),
        protocol_name=request.get("protocol_name", None),
        assignments=[
            SyncGroupAssignment(member_id=entry.member_id, assignment=entry.assignment)
            for entry in body.assignments
        ],
    )
    response = await call_coordinator(
        request,
        body.group_id,
        lambda coordinator: coordinator.SyncGroup(
            message, timeout=LONGEST_REBALANCE_SECONDS + JOIN_GRACE_SECONDS
        ),
        lambda code: SyncGroupResponse(error_code=code),
        may_repeat=True,
    )
    return {
        "error_code": response.error_code,
        "protocol_type": response.protocol_type if response.HasField("protocol_type") else None,
        "protocol_name": response.protocol_name if response.HasField("protocol_name") else None,
        "assignment": response.assignment,
    }


HANDLER = Handler(api_key=14, versions=(0, 5), handle=handle, may_wait=True, unanswered=NOBODY_COORDINATES)
