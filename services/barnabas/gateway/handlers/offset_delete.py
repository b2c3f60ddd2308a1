"""OffsetDelete (key 47): committed offsets of topics that no member of the group reads (KIP-496).

Partitions that do not exist are answered here; an error of the whole group leaves the list of topics empty.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchTopic
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES


async def handle(request: Request) -> Answer:
    image, group_id = request.image, request.body.group_id
    topics = [_existing(image, topic) for topic in request.body.topics]
    message = OffsetDeleteRequest(group_id=group_id, topics=[topic for topic in topics if topic.partitions])
    response = await GROUPS.ask(
        request,
        group_id,
        lambda coordinator: coordinator.OffsetDelete(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: OffsetDeleteResponse(error_code=code),
    )
    if response.error_code:
        return {"error_code": response.error_code, "topics": []}
    codes = {
        (topic.name, partition.partition): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    # Kafka does not answer for a topic without partitions.
    answers = [_answer(topic, codes) for topic in request.body.topics if topic.partitions]
    return {"error_code": ErrorCode.none, "topics": answers}


def _existing(image: MetadataImage, topic: Any) -> OffsetFetchTopic:
    """The partitions asked for that there are."""
    known = image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    indexes = [partition.partition_index for partition in topic.partitions]
    return OffsetFetchTopic(name=topic.name, partitions=[index for index in indexes if 0 <= index < count])


def _answer(topic: Any, codes: dict[tuple[str, int], int]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition_index": partition.partition_index,
                "error_code": codes.get(
                    (topic.name, partition.partition_index), ErrorCode.unknown_topic_or_partition
                ),
            }
            for partition in topic.partitions
        ],
    }


HANDLER = Handler(api_key=47, versions=(0, 0), handle=handle, unanswered=NOBODY_COORDINATES)
