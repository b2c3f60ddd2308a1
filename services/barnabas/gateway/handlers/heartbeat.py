"""Heartbeat (key 12): keeps a member's session alive. v3 adds static members (KIP-345)."""

from __future__ import annotations

from barnabas.gateway import limits
from barnabas.gateway.inside.group_calls import call_coordinator
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.messages.coordinator_pb2 import HeartbeatRequest, HeartbeatResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES


async def handle(request: Request) -> Answer:
    body = request.body
    message = HeartbeatRequest(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=request.get("group_instance_id", None),
    )
    response = await call_coordinator(
        request,
        body.group_id,
        lambda coordinator: coordinator.Heartbeat(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: HeartbeatResponse(error_code=code),
        may_repeat=True,
    )
    return {"error_code": response.error_code}


HANDLER = Handler(api_key=12, versions=(0, 4), handle=handle, unanswered=NOBODY_COORDINATES)
