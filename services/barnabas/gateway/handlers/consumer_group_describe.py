"""ConsumerGroupDescribe (key 69): members and assignments of groups of the newer protocol (KIP-848), each at its own
coordinator.

v1 says which protocol a member speaks (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.authorized_operations import GROUP_OPERATIONS, NOT_ASKED_FOR
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.group_calls import call_coordinators, check_consumer_protocol
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescription,
    ConsumerGroupMemberDescription,
    TopicIdPartitions,
)
from barnabas.metadata.leaders import NOBODY_COORDINATES
from barnabas.wire.response_slices import Rows

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink

_CLASSIC: Final = 0
_CONSUMER: Final = 1


async def handle(request: Request) -> Answer:
    check_consumer_protocol(request)
    group_ids = request.body.group_ids
    async with Gathered(request) as gathered:
        described = await call_coordinators(request, gathered, group_ids, _describe, _refused)
        # A group that is named twice is answered twice, as in Kafka, but no small request is answered without end.
        sizes = {group_id: group.ByteSize() for group_id, group in described.items()}
        gathered.check_repeated(sizes, group_ids)
        groups = Rows(len(group_ids), (_answer(request, described[group_id]) for group_id in group_ids))
        return await encode_answer(request, {"groups": groups}, limits.DESCRIBED_BYTES_MAX)


async def _describe(
    coordinator: CoordinatorLink, group_ids: list[str], seconds: float
) -> Sequence[ConsumerGroupDescription]:
    message = ConsumerGroupDescribeRequest(group_ids=group_ids, bytes_max=limits.GATHERED_AT_A_TIME_BYTES)
    response = await coordinator.ConsumerGroupDescribe(message, timeout=seconds)
    return response.groups


def _refused(group_id: str, code: ErrorCode) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(error_code=code, group_id=group_id)


def _answer(request: Request, group: ConsumerGroupDescription) -> dict[str, Any]:
    is_asked = request.body.include_authorized_operations and not group.error_code
    return {
        "error_code": group.error_code,
        "error_message": group.error_message or None,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": [_member(member) for member in group.members],
        "authorized_operations": GROUP_OPERATIONS if is_asked else NOT_ASKED_FOR,
    }


def _member(member: ConsumerGroupMemberDescription) -> dict[str, Any]:
    has = member.HasField
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id if has("instance_id") else None,
        "rack_id": member.rack_id if has("rack_id") else None,
        "member_epoch": member.member_epoch,
        "client_id": member.client.client_id,
        "client_host": member.client.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex if has("subscribed_topic_regex") else None,
        "assignment": {"topic_partitions": _topics(member.assignment)},
        "target_assignment": {"topic_partitions": _topics(member.target_assignment)},
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def _topics(topics: Iterable[TopicIdPartitions]) -> list[dict[str, Any]]:
    return [
        {"topic_id": topic.topic_id, "topic_name": topic.topic_name, "partitions": topic.partitions}
        for topic in topics
    ]


HANDLER = Handler(api_key=69, versions=(0, 1), handle=handle, unanswered=NOBODY_COORDINATES)
