"""AlterReplicaLogDirs (key 34): moves replicas to other log directories of the broker that is asked (KIP-113).

v2 is flexible. Where one broker stands for all nodes, so do its directories: each node that has a replica of a
partition moves it to its own directory of that path. What a node without the replica or the path has to say then counts
only where no other says anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError, Unreachable
from barnabas.messages.storage_pb2 import AlterReplicaLogDirsRequest, ReplicaLogDir
from barnabas.metadata.image import MetadataImage

_NOT_MEANT: Final = (
    ErrorCode.replica_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.log_dir_not_found,
)
"""What a node says that was not meant, where one broker stands for several; of these the first is told."""


async def handle(request: Request) -> Answer:
    image = request.image
    # Of a partition that is named twice the last directory counts, as in Kafka.
    wanted = {
        (topic.name, partition): directory.path
        for directory in request.body.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    asked = [
        ReplicaLogDir(topic=topic, partition=partition, path=path)
        for (topic, partition), path in wanted.items()
    ]
    message = AlterReplicaLogDirsRequest(replicas=asked)
    nodes = request.addressed_nodes(image)
    told = await asyncio.gather(*(_ask(request, node_id, message) for node_id in nodes))
    if not told:
        raise Unreachable("no storage node is there")
    topics: dict[str, list[dict[str, Any]]] = {}
    for item, *codes in zip(asked, *told, strict=True):
        topics.setdefault(item.topic, []).append(
            {"partition_index": item.partition, "error_code": _code(image, item, codes)}
        )
    return {"results": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()]}


async def _ask(request: Request, node_id: int, message: AlterReplicaLogDirsRequest) -> list[int]:
    """One code a replica; that of an away node for each where it does not answer."""
    link = request.parts.links.storage(node_id)
    try:
        if link is not None:
            response = await link.AlterReplicaLogDirs(message, timeout=limits.CALL_TIMEOUT_SECONDS)
            return list(response.error_codes)
    except LinkError:
        pass
    return [int(HANDLER.unanswered)] * len(message.replicas)


def _code(image: MetadataImage, item: ReplicaLogDir, codes: Sequence[int]) -> ErrorCode:
    meant = [code for code in codes if code not in _NOT_MEANT]
    if meant:
        return ErrorCode(next(filter(None, meant), 0))
    code = min((ErrorCode(each) for each in codes), key=_NOT_MEANT.index)
    topic = image.topics.get(item.topic)
    if code == ErrorCode.unknown_topic_or_partition and topic is not None:
        # The node has not heard of it yet.
        is_known = 0 <= item.partition < len(topic.partitions)
        return ErrorCode.replica_not_available if is_known else code
    return code


HANDLER = Handler(api_key=34, versions=(1, 2), handle=handle)
