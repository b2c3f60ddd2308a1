"""What a Produce request says of its batches: where they are to go, and whether they may."""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS, led_partition
from barnabas.records.batch import COMPRESSION_MASK, TRANSACTIONAL_BIT, first_flags
from barnabas.records.compression import Compression
from barnabas.wire.produce import TOPIC_ID_FROM

ZSTD_FROM: Final = 7
"""The first version whose clients may send zstd (KIP-110)."""


def is_transactional(body: Any) -> bool:
    """Whether a batch belongs to a transaction: Kafka then wants a transactional id of the request as a whole."""
    return any(
        first_flags(data.records) & TRANSACTIONAL_BIT
        for topic in body.topic_data
        for data in topic.partition_data
    )


def topic_of(version: int, topic: Any) -> str | bytes:
    """The name of a topic of the request, or its id."""
    if version >= TOPIC_ID_FROM:
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    name: str = topic.name
    return name


def named_partitions(request: Request) -> list[tuple[str | bytes, int]]:
    """The partitions of a Produce request, by the topic's name or id as the request has it."""
    return [
        (topic_of(request.version, topic), data.index)
        for topic in request.body.topic_data
        for data in topic.partition_data
    ]


def leader_of(
    image: MetadataImage, version: int, name_or_id: str | bytes, data: Any
) -> PartitionRecord | ErrorCode:
    """The partition that `data` is for, which names its leader; or why it is not to be handed over."""
    found = led_partition(image, name_or_id, data.index)
    if (
        version < ZSTD_FROM
        and (found is NOBODY_LEADS or isinstance(found, PartitionRecord))
        and first_flags(data.records) & COMPRESSION_MASK == Compression.ZSTD
    ):
        return ErrorCode.unsupported_compression_type
    return found
