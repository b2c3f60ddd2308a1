"""SyncGroup (key 14): the leader's assignment goes to the members, whose calls wait for it.

v3 adds static members (KIP-345), v5 the protocol's type and name (KIP-559), which a
member must say.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.inside.coordinator_call import CoordinatorCall
from barnabas.gateway.inside.group_calls import LONGEST_REBALANCE_SECONDS
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.limits import JOIN_GRACE_SECONDS
from barnabas.gateway.request import Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_PROTOCOL_FROM: Final = 5


def _message(request: Request) -> SyncGroupRequest:
    body = request.body
    if request.version >= _PROTOCOL_FROM and (body.protocol_type is None or body.protocol_name is None):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    return SyncGroupRequest(
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


def _answer(_: Request, response: SyncGroupResponse) -> dict[str, Any]:
    return {
        "error_code": response.error_code,
        "protocol_type": response.protocol_type if response.HasField("protocol_type") else None,
        "protocol_name": response.protocol_name if response.HasField("protocol_name") else None,
        "assignment": response.assignment,
    }


CALL: Final = CoordinatorCall(
    "SyncGroup",
    GROUPS,
    _message,
    _answer,
    refused=lambda _, code: SyncGroupResponse(error_code=code),
    seconds=lambda _: LONGEST_REBALANCE_SECONDS + JOIN_GRACE_SECONDS,
    may_repeat=lambda _: True,
)

HANDLER = Handler(
    api_key=14,
    versions=(0, 5),
    handle=CALL.handle,
    call=CALL,
    may_wait=True,
    unanswered=NOBODY_COORDINATES,
)
