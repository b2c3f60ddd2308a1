"""ListOffsets (key 2): offsets by timestamp, and the ends of the log.

v2 adds the isolation level, v4 leader epochs, v5 OFFSET_NOT_AVAILABLE (KIP-207), v7 the record with the highest
timestamp (KIP-734), v8 the local log's start (KIP-405), v9 the latest tiered offset, v10 a timeout, v11 the earliest
pending upload.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.gateway.inside.by_leader import PartitionRef, call_leaders
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.isolation import known_isolation_level
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_link import StorageLink
from barnabas.messages.storage_pb2 import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResult
from barnabas.metadata.leaders import NO_LEADER_TO_SHOW, NOBODY_LEADS

_FIRST_VERSION_OF: Final = {-3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps that older versions do not have."""
_OFFSET_NOT_AVAILABLE_FROM: Final = 5
"""Older versions hear LEADER_NOT_AVAILABLE from a leader that does not know its high watermark yet (KIP-207)."""


async def handle(request: Request) -> Answer:
    isolation_level = known_isolation_level(request)

    async def ask(
        link: StorageLink, asked: list[ListOffsetsPartition], seconds: float
    ) -> list[ListOffsetsResult]:
        message = ListOffsetsRequest(partitions=asked, isolation_level=isolation_level)
        response = await link.ListOffsets(message, timeout=seconds)
        return list(response.results)

    times = Counter(
        (topic.name, partition.partition_index)
        for topic in request.body.topics
        for partition in topic.partitions
    )
    refs = [
        PartitionRef(topic.name, None, partition.partition_index, partition)
        for topic in request.body.topics
        for partition in topic.partitions
        if times[topic.name, partition.partition_index] == 1
    ]
    results = await call_leaders(request, refs, _message, ask, _failed)
    told: dict[str, dict[int, dict[str, Any]]] = {}
    for ref, result in zip(refs, results, strict=True):
        told.setdefault(ref.topic_name or "", {})[ref.partition] = _answer(request, ref.entry, result)
    # A partition that is named twice is refused, once; a topic without partitions is not answered for, as in Kafka.
    for topic in request.body.topics:
        for partition in topic.partitions:
            if times[topic.name, partition.partition_index] > 1:
                refused = _answer(request, partition, _failed(ErrorCode.invalid_request))
                told.setdefault(topic.name, {})[partition.partition_index] = refused
    return {"topics": [{"name": name, "partitions": list(rows.values())} for name, rows in told.items()]}


def _message(topic_id: bytes, partition: Any) -> ListOffsetsPartition:
    return ListOffsetsPartition(
        topic_id=topic_id,
        partition=partition.partition_index,
        current_leader_epoch=getattr(partition, "current_leader_epoch", -1),
        timestamp_ms=partition.timestamp,
    )


def _failed(code: ErrorCode) -> ListOffsetsResult:
    return ListOffsetsResult(error_code=code, offset=-1, timestamp_ms=-1, leader_epoch=-1)


def _answer(request: Request, partition: Any, result: ListOffsetsResult) -> dict[str, Any]:
    if request.version < _FIRST_VERSION_OF.get(partition.timestamp, 0):
        result = _failed(ErrorCode.unsupported_version)
    code = client_code(result.error_code)
    if code == ErrorCode.offset_not_available and request.version < _OFFSET_NOT_AVAILABLE_FROM:
        code = NO_LEADER_TO_SHOW
    return {
        "partition_index": partition.partition_index,
        "error_code": code,
        "timestamp": result.timestamp_ms,
        "offset": result.offset,
        "leader_epoch": result.leader_epoch,
    }


HANDLER = Handler(
    api_key=2,
    versions=(1, 11),
    handle=handle,
    unanswered=NOBODY_LEADS,
    lacks="There is no tiered storage: the latest tiered offset is always unknown (-1).",
)
