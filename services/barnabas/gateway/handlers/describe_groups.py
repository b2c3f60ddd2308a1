"""DescribeGroups (key 15): state and members of groups, each at its own coordinator.

v3 adds authorized operations, v4 static members' instance ids, v6 GROUP_ID_NOT_FOUND and a message for a group that
does not exist (KIP-1043); before that such a group is simply Dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.authorized_operations import GROUP_OPERATIONS, NOT_ASKED_FOR
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.group_calls import call_coordinators
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    DescribeGroupsRequest,
    GroupDescription,
    GroupMemberDescription,
)
from barnabas.metadata.leaders import NOBODY_COORDINATES
from barnabas.wire.response_slices import Rows

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink

_NOT_FOUND_FROM: Final = 6


async def handle(request: Request) -> Answer:
    group_ids = request.body.groups
    async with Gathered(request) as gathered:
        described = await call_coordinators(request, gathered, group_ids, _describe, _refused)
        # A group that is named twice is answered twice, as in Kafka, but no small request is answered without end.
        sizes = {group_id: group.ByteSize() for group_id, group in described.items()}
        gathered.check_repeated(sizes, group_ids)
        groups = Rows(len(group_ids), (_answer(request, described[group_id]) for group_id in group_ids))
        return await encode_answer(request, {"groups": groups}, limits.DESCRIBED_BYTES_MAX)


async def _describe(
    coordinator: CoordinatorLink, group_ids: list[str], seconds: float
) -> Sequence[GroupDescription]:
    message = DescribeGroupsRequest(group_ids=group_ids, bytes_max=limits.GATHERED_AT_A_TIME_BYTES)
    response = await coordinator.DescribeGroups(message, timeout=seconds)
    return response.groups


def _refused(group_id: str, code: ErrorCode) -> GroupDescription:
    return GroupDescription(error_code=code, group_id=group_id)


def _answer(request: Request, group: GroupDescription) -> dict[str, Any]:
    code, message = ErrorCode(group.error_code), group.error_message
    if code is ErrorCode.group_id_not_found and request.version < _NOT_FOUND_FROM:
        code = ErrorCode.none
    # A Dead group has operations too, as in Kafka: whether they are filled in goes by the code that is shown.
    is_asked = request.get("include_authorized_operations", False) and code is ErrorCode.none
    return {
        "error_code": code,
        "error_message": message or None,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [_member(member) for member in group.members],
        "authorized_operations": GROUP_OPERATIONS if is_asked else NOT_ASKED_FOR,
    }


def _member(member: GroupMemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id if member.HasField("group_instance_id") else None,
        "client_id": member.client.client_id,
        "client_host": member.client.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


HANDLER = Handler(api_key=15, versions=(0, 6), handle=handle, unanswered=NOBODY_COORDINATES)
