"""DescribeLogDirs (key 35): the log directories of the broker that is asked, and the partitions in them (KIP-113).

v2 is flexible, v3 adds an error code of the whole, v4 sizes of file systems (KIP-827), v5 cordoned directories
(KIP-1066). Where one broker stands for all nodes, directories with the same path are shown as one, their sizes added
up, which is cordoned if all of them are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
from barnabas.messages.storage_pb2 import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDirDescription,
    PartitionOfTopic,
)
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    image = request.image
    message = DescribeLogDirsRequest(
        all_partitions=request.body.topics is None, partitions=_partitions(image, request.body.topics or ())
    )
    responses = await asyncio.gather(
        *(_ask(request, node_id, message) for node_id in request.addressed_nodes(image))
    )
    by_path: dict[str, list[LogDirDescription]] = {}
    for response in responses:
        for described in () if response is None else response.log_dirs:
            by_path.setdefault(described.path, []).append(described)
    # What did answer is shown all the same.
    answered = bool(responses) and None not in responses
    return {
        "error_code": ErrorCode.none if answered else ErrorCode.broker_not_available,
        "results": [_answer(path, described) for path, described in by_path.items()],
    }


def _partitions(image: MetadataImage, topics: Iterable[Any]) -> list[PartitionOfTopic]:
    """The partitions asked for; a topic that does not exist is in no directory."""
    return [
        PartitionOfTopic(topic_id=image.topics[topic.topic].topic_id, partition=index)
        for topic in topics
        if topic.topic in image.topics
        for index in topic.partitions
    ]


async def _ask(
    request: Request, node_id: int, message: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | None:
    link = request.parts.links.storage(node_id)
    if link is None:
        return None
    try:
        return await link.DescribeLogDirs(message, timeout=limits.CALL_TIMEOUT_SECONDS)
    except LinkError:
        return None


def _answer(path: str, described: list[LogDirDescription]) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in (partition for one in described for partition in one.partitions):
        topics.setdefault(partition.topic, []).append(
            {
                "partition_index": partition.partition,
                "partition_size": partition.size_bytes,
                "offset_lag": partition.offset_lag,
                "is_future_key": partition.is_future,
            }
        )
    codes = [one.error_code for one in described if one.error_code]
    known = [one for one in described if not one.error_code]
    return {
        "error_code": codes[0] if codes else ErrorCode.none,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": sum(one.total_bytes for one in known) if known else -1,
        "usable_bytes": sum(one.usable_bytes for one in known) if known else -1,
        "is_cordoned": bool(known) and all(one.is_cordoned for one in known),
    }


HANDLER = Handler(api_key=35, versions=(1, 5), handle=handle)
