"""JoinGroup (key 11): waits for the rebalance, however long its members take.

v1 adds the rebalance timeout, v4 has new members told their id first (KIP-394), v5 static members (KIP-345), v7 the
protocol type, v8 a reason (KIP-800), v9 lets the leader skip the assignment (KIP-814). Versions 0 and 1 are served: old
clients need them, and Kafka 4 took them back after 4.0.0.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.inside.coordinator_call import CoordinatorCall
from barnabas.gateway.inside.group_calls import client_identity, rebalance_deadline_seconds
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import GroupProtocol, JoinGroupRequest, JoinGroupResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_KNOWN_MEMBER_ID_FROM: Final = 4
_NULLABLE_PROTOCOL_FROM: Final = 7
_SKIPPED_ASSIGNMENT_FROM: Final = 9


def _message(request: Request) -> JoinGroupRequest:
    body, version = request.body, request.version
    session_timeout = body.session_timeout
    return JoinGroupRequest(
        group_id=body.group_id,
        session_timeout_ms=milliseconds(session_timeout),
        rebalance_timeout_ms=milliseconds(request.get("rebalance_timeout", session_timeout)),
        member_id=body.member_id,
        group_instance_id=request.get("group_instance_id", None),
        protocol_type=body.protocol_type,
        protocols=[
            GroupProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in body.protocols
        ],
        require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
        reason=request.get("reason", None),
        supports_skipping_assignment=version >= _SKIPPED_ASSIGNMENT_FROM,
        client=client_identity(request),
    )


def _answer(request: Request, response: JoinGroupResponse) -> dict[str, Any]:
    absent = None if request.version >= _NULLABLE_PROTOCOL_FROM else ""
    return {
        "error_code": ErrorCode(response.error_code),
        "generation_id": response.generation_id,
        "protocol_type": response.protocol_type if response.HasField("protocol_type") else None,
        "protocol_name": response.protocol_name if response.HasField("protocol_name") else absent,
        "leader": response.leader,
        "skip_assignment": response.skip_assignment,
        "member_id": response.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id
                if member.HasField("group_instance_id")
                else None,
                "metadata": member.metadata,
            }
            for member in response.members
        ],
    }


CALL: Final = CoordinatorCall(
    "JoinGroup",
    GROUPS,
    _message,
    _answer,
    refused=lambda message, code: JoinGroupResponse(
        error_code=code, generation_id=-1, member_id=message.member_id
    ),
    seconds=lambda message: rebalance_deadline_seconds(message.rebalance_timeout_ms),
    may_repeat=lambda message: bool(message.member_id),
)

HANDLER = Handler(
    api_key=11,
    versions=(0, 9),
    handle=CALL.handle,
    call=CALL,
    may_wait=True,
    unanswered=NOBODY_COORDINATES,
)
