"""Heartbeat (key 12): keeps a member's session alive. v3 adds static members (KIP-345)."""

from __future__ import annotations

from typing import Final

from barnabas.gateway.inside.coordinator_call import CoordinatorCall
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Handler, Request
from barnabas.messages.coordinator_pb2 import HeartbeatRequest, HeartbeatResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES


def _message(request: Request) -> HeartbeatRequest:
    body = request.body
    return HeartbeatRequest(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=request.get("group_instance_id", None),
    )


CALL: Final = CoordinatorCall(
    "Heartbeat",
    GROUPS,
    _message,
    answer=lambda _, response: {"error_code": response.error_code},
    refused=lambda _, code: HeartbeatResponse(error_code=code),
    may_repeat=lambda _: True,
)

HANDLER = Handler(api_key=12, versions=(0, 4), handle=CALL.handle, call=CALL, unanswered=NOBODY_COORDINATES)
