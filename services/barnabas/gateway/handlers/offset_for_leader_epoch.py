"""OffsetForLeaderEpoch (key 23): where a leader epoch ends, for clients that look for a truncated log (KIP-320).

v3 adds the replica id, v4 is flexible.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.inside.by_leader import PartitionRef, call_leaders
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_link import StorageLink
from barnabas.messages.storage_pb2 import (
    EpochEndOffset,
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResult,
)
from barnabas.metadata.leaders import NOBODY_LEADS


async def handle(request: Request) -> Answer:
    refs = [
        PartitionRef(topic.topic, None, partition.partition, partition)
        for topic in request.body.topics
        for partition in topic.partitions
    ]
    results = iter(await call_leaders(request, refs, _message, _ask, _failed))
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_answer(partition, next(results)) for partition in topic.partitions],
            }
            for topic in request.body.topics
        ]
    }


async def _ask(
    link: StorageLink, asked: list[OffsetForLeaderEpochPartition], seconds: float
) -> list[OffsetForLeaderEpochResult]:
    message = OffsetForLeaderEpochRequest(partitions=asked)
    response = await link.OffsetForLeaderEpoch(message, timeout=seconds)
    return list(response.results)


def _message(topic_id: bytes, partition: Any) -> OffsetForLeaderEpochPartition:
    return OffsetForLeaderEpochPartition(
        topic_id=topic_id,
        partition=partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
        leader_epoch=partition.leader_epoch,
    )


def _failed(code: ErrorCode) -> OffsetForLeaderEpochResult:
    return OffsetForLeaderEpochResult(error_code=code, end=EpochEndOffset(leader_epoch=-1, end_offset=-1))


def _answer(partition: Any, result: OffsetForLeaderEpochResult) -> dict[str, Any]:
    return {
        "error_code": client_code(result.error_code),
        "partition": partition.partition,
        "leader_epoch": result.end.leader_epoch,
        "end_offset": result.end.end_offset,
    }


HANDLER = Handler(api_key=23, versions=(2, 4), handle=handle, unanswered=NOBODY_LEADS)
