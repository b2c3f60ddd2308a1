"""DescribeTopicPartitions (key 75): topics in the order of their names, a page at a time (KIP-966).

The page ends after response_partition_limit partitions; next_cursor says where the next one begins. No topics in the
request ask for all.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.answers.authorized_operations import NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.gateway.handlers.metadata import describe_partition
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_names import topic_name_problem


async def handle(request: Request) -> Answer:
    image = request.image
    try:
        names = _names(request, image)
    except KafkaError as error:
        # There is no place for an error of the whole, nor for a message.
        refused = {"topic_authorized_operations": NOT_ASKED_FOR}
        return {"topics": [_failed(topic.name, error.code) | refused for topic in request.body.topics]}
    cursor = request.body.cursor
    room = _partition_limit(request, image)
    topics: list[dict[str, Any]] = []
    next_cursor = None
    for name in names:
        if room == 0:
            next_cursor = _cursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_failed(name, _why_missing(name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(len(topic.partitions), first + room)
        topics.append(
            {
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": topic.internal,
                "partitions": [_partition(request, image, record) for record in topic.partitions[first:end]],
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        if end < len(topic.partitions):
            next_cursor = _cursor(name, end)
            break
        room -= max(0, end - first)
    return {"topics": topics, "next_cursor": next_cursor}


def _names(request: Request, image: MetadataImage) -> list[str]:
    """The names to describe, sorted, from the cursor's on. Raises KafkaError INVALID_REQUEST for a bad cursor."""
    cursor = request.body.cursor
    wanted = {topic.name for topic in request.body.topics}
    first = "" if cursor is None else cursor.topic_name
    if wanted and cursor is not None and first not in wanted:
        raise KafkaError(ErrorCode.invalid_request, f"The topics must include the cursor's, {first}.")
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.invalid_request, "The cursor's partition must not be negative.")
    return sorted(name for name in wanted or image.topics if name >= first)


def _partition_limit(request: Request, image: MetadataImage) -> int:
    limit = effective_broker_setting(image, "max.request.partition.size.limit").value
    assert isinstance(limit, int)
    asked: int = request.body.response_partition_limit
    return max(1, min(limit, asked))


def _partition(request: Request, image: MetadataImage, record: Any) -> dict[str, Any]:
    # The code stays 0 without a leader: this request was made for tools, which look at the leader itself.
    return {
        **describe_partition(request, image, record),
        "error_code": ErrorCode.none,
        "eligible_leader_replicas": record.eligible_leader_replicas,
        "last_known_elr": record.last_known_eligible_leader_replicas,
    }


def _why_missing(name: str) -> ErrorCode:
    if topic_name_problem(name) is not None:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _failed(name: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": b"",
        "partitions": [],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _cursor(name: str, partition: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": partition}


HANDLER = Handler(api_key=75, versions=(0, 0), handle=handle)
