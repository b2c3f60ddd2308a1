"""LeaveGroup (key 13): members go. Up to v2 one member, from v3 many (KIP-345), v5 adds reasons (KIP-800)."""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.messages.coordinator_pb2 import LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from barnabas.metadata.leaders import NOBODY_COORDINATES

_MANY_MEMBERS_FROM: Final = 3


async def handle(request: Request) -> Answer:
    message = LeaveGroupRequest(group_id=request.body.group_id, members=_members(request))
    response = await GROUPS.ask(
        request,
        message.group_id,
        lambda coordinator: coordinator.LeaveGroup(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: LeaveGroupResponse(error_code=code),
    )
    error_code = response.error_code
    if request.version < _MANY_MEMBERS_FROM and not error_code and response.members:
        error_code = response.members[0].error_code
    return {
        "error_code": error_code,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id
                if member.HasField("group_instance_id")
                else None,
                "error_code": member.error_code,
            }
            for member in response.members
        ],
    }


def _members(request: Request) -> list[LeavingMember]:
    if request.version < _MANY_MEMBERS_FROM:
        return [LeavingMember(member_id=request.body.member_id)]
    return [
        LeavingMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            reason=getattr(member, "reason", None),
        )
        for member in request.body.members
    ]


HANDLER = Handler(api_key=13, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
