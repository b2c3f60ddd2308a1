"""OffsetCommit (key 8): a group's progress.

v2 to v4 name a retention time, v6 adds leader epochs (KIP-320), v7 static members (KIP-345), v9 may answer for the
newer group protocol, v10 names topics by id. Partitions that do not exist are refused here, the
others go to the coordinator.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.inside.group_calls import call_coordinator
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
)
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.metadata.leaders import NOBODY_COORDINATES

_NOT_FOUND_FROM: Final = 9
_TOPIC_ID_FROM: Final = 10
_NOT_COMMITTED_HERE: Final = None


async def handle(request: Request) -> Answer:
    codes, message = _sort_out(request)
    if message.topics:
        response = await call_coordinator(
            request,
            message.group_id,
            lambda coordinator: coordinator.OffsetCommit(message, timeout=limits.CALL_TIMEOUT_SECONDS),
            lambda code: _refused(message, code),
        )
    else:
        response = OffsetCommitResponse()
    committed = iter(
        [
            _known_code(request, partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        ]
    )
    return {
        "topics": [
            _answer(
                request,
                topic,
                [next(committed) if code is _NOT_COMMITTED_HERE else code for code in topic_codes],
            )
            for topic, topic_codes in zip(request.body.topics, codes, strict=True)
            if topic_codes  # Kafka does not answer for a topic without partitions
        ]
    }


def _known_code(request: Request, code: int) -> int:
    """A member of a group that does not exist belongs to no generation, as older clients know it."""
    if code == ErrorCode.group_id_not_found and request.version < _NOT_FOUND_FROM:
        return ErrorCode.illegal_generation
    return code


def _sort_out(request: Request) -> tuple[list[list[ErrorCode | None]], OffsetCommitRequest]:
    """For each partition of the request the error known here, or None; and those without one for the coordinator."""
    body, image = request.body, request.image
    retention = request.get("retention_time", None)
    message = OffsetCommitRequest(
        group_id=body.group_id,
        generation_id=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=request.get("group_instance_id", None),
        retention_time_ms=-1 if retention is None else milliseconds(retention),
    )
    codes: list[list[ErrorCode | None]] = []
    for wanted in body.topics:
        topic, missing = _find(request, image, wanted)
        count = 0 if topic is None else len(topic.partitions)
        topic_codes = [
            _NOT_COMMITTED_HERE if 0 <= partition.partition_index < count else missing
            for partition in wanted.partitions
        ]
        codes.append(topic_codes)
        known = [
            _partition(partition)
            for partition, code in zip(wanted.partitions, topic_codes, strict=True)
            if code is _NOT_COMMITTED_HERE
        ]
        if topic is not None and known:
            message.topics.append(
                OffsetCommitTopic(name=topic.name, partitions=known, topic_id=topic.topic_id)
            )
    return codes, message


def _find(request: Request, image: MetadataImage, wanted: Any) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and the error of its partitions that do not exist."""
    missing = ErrorCode.unknown_topic_or_partition
    if request.version < _TOPIC_ID_FROM:
        return image.topics.get(wanted.name), missing
    topic = image.topics_by_id.get(wanted.topic_id.bytes) if wanted.topic_id else None
    return topic, missing if topic is not None else ErrorCode.unknown_topic_id


def _partition(partition: Any) -> OffsetCommitPartition:
    return OffsetCommitPartition(
        partition=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=getattr(partition, "committed_leader_epoch", -1),
        metadata=partition.committed_metadata,
    )


def _refused(message: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Every partition with `code`: the protocol has no place for an error of the whole."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResult(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResult(partition=partition.partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _answer(request: Request, topic: Any, codes: list[int]) -> dict[str, Any]:
    by_id = request.version >= _TOPIC_ID_FROM
    return {
        "name": "" if by_id else topic.name,
        "topic_id": topic.topic_id.bytes if by_id and topic.topic_id else b"",
        "partitions": [
            {"partition_index": partition.partition_index, "error_code": code}
            for partition, code in zip(topic.partitions, codes, strict=True)
        ],
    }


HANDLER = Handler(
    api_key=8,
    versions=(2, 10),
    handle=handle,
    unanswered=NOBODY_COORDINATES,
)
