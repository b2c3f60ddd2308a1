"""ConsumerGroupHeartbeat (key 68): a member of a group of the newer protocol joins, stays or leaves (KIP-848).

v1 adds subscriptions by regular expression, and has members choose their ids themselves (KIP-1082).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.inside.group_calls import check_consumer_protocol, client_identity
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
    SubscribedTopics,
    TopicIdPartitions,
)
from barnabas.metadata.leaders import NOBODY_COORDINATES

_OWN_MEMBER_ID_FROM: Final = 1


async def handle(request: Request) -> Answer:
    check_consumer_protocol(request)
    if request.version >= _OWN_MEMBER_ID_FROM and not request.body.member_id:
        raise KafkaError(ErrorCode.invalid_request, "MemberId can't be empty.")
    message = _message(request)
    response = await GROUPS.ask(
        request,
        message.group_id,
        lambda coordinator: coordinator.ConsumerGroupHeartbeat(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: ConsumerGroupHeartbeatResponse(error_code=code),
    )
    return _answer(response)


def _message(request: Request) -> ConsumerGroupHeartbeatRequest:
    body = request.body
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerGroupHeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout),
        subscribed_topic_names=None if names is None else SubscribedTopics(names=names),
        subscribed_topic_regex=request.get("subscribed_topic_regex", None),
        server_assignor=body.server_assignor,
        topic_partitions=None if owned is None else OwnedPartitions(topics=map(_topic, owned)),
        client=client_identity(request),
    )


def _topic(topic: Any) -> TopicIdPartitions:
    topic_id = topic.topic_id.bytes if topic.topic_id else bytes(16)
    return TopicIdPartitions(topic_id=topic_id, partitions=topic.partitions)


def _answer(response: ConsumerGroupHeartbeatResponse) -> dict[str, Any]:
    assignment = None
    if response.HasField("assignment"):
        topics = response.assignment.topics
        assignment = {
            "topic_partitions": [
                {"topic_id": topic.topic_id, "partitions": topic.partitions} for topic in topics
            ]
        }
    return {
        "error_code": response.error_code,
        "error_message": response.error_message or None,
        "member_id": response.member_id or None,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": response.heartbeat_interval_ms,
        "assignment": assignment,
    }


HANDLER = Handler(
    api_key=68,
    versions=(0, 1),
    handle=handle,
    unanswered=NOBODY_COORDINATES,
)
