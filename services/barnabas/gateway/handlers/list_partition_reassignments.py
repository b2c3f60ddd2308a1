"""ListPartitionReassignments (key 46): partitions that are moving to other replicas (KIP-455).

Topics that do not exist, and partitions that are not being moved, are left out, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    image, asked = request.image, request.body.topics
    if asked is None:
        wanted: Iterable[tuple[str, Iterable[int]]] = (
            (topic.name, range(len(topic.partitions))) for topic in image.topics.values()
        )
    else:
        wanted = ((topic.name, topic.partition_indexes) for topic in asked)
    topics = [
        {"name": name, "partitions": rows} for name, each in wanted if (rows := _rows(image, name, each))
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "topics": topics}


def _rows(image: MetadataImage, name: str, indexes: Iterable[int]) -> list[dict[str, Any]]:
    topic = image.topics.get(name)
    if topic is None:
        return []
    present = len(topic.partitions)
    moving = (topic.partitions[index] for index in indexes if 0 <= index < present)
    return [_row(each) for each in moving if each.adding_replicas or each.removing_replicas]


def _row(partition: PartitionRecord) -> dict[str, Any]:
    return {
        "partition_index": partition.partition,
        "replicas": list(partition.replicas),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
    }


HANDLER = Handler(api_key=46, versions=(0, 0), handle=handle)
