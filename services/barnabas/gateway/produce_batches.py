"""What a Produce request says of its batches: where they are to go, if they may, and of which transaction they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import VALID_ACKS
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import AppendTransaction
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS, led_partition
from barnabas.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    first_flags,
    parse_header,
)
from barnabas.records.compression import Compression
from barnabas.wire.produce import TOPIC_ID_FROM

ZSTD_FROM: Final = 7
"""The first version whose clients may send zstd (KIP-110)."""


ABORTABLE_FROM: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""
ADDED_FROM: Final = 12
"""The first version whose clients leave it to the leaders to add their partitions to the transaction (KIP-890)."""


def refusal_of(body: Any) -> tuple[ErrorCode, str] | None:
    """Why no batch of the request is to be handed over, and what there is to say of it; None where they are."""
    if _is_transactional(body):
        if body.transactional_id is None:
            reason = "Records of a transaction come with a transactional id."
            return ErrorCode.transactional_id_authorization_failed, reason
        if len(_transactional_producers(body)) > 1:
            reason = (
                "The records of one request are of one producer and epoch, where they are of a transaction."
            )
            return ErrorCode.invalid_producer_id_mapping, reason
    return None if body.acks in VALID_ACKS else (ErrorCode.invalid_required_acks, "")


def transaction_of(version: int, body: Any) -> AppendTransaction | None:
    """What the leaders are to know of the transaction that the batches belong to; None where they belong to none."""
    if body.transactional_id is None or not _is_transactional(body):
        return None
    return transaction_in(version, body.transactional_id)


def transaction_in(version: int, transactional_id: str) -> AppendTransaction:
    """The transaction of a request in this version."""
    return AppendTransaction(transactional_id=transactional_id, adds_partitions=version >= ADDED_FROM)


def known_code(version: int, code: ErrorCode) -> ErrorCode:
    """What the client's version knows instead of `code`."""
    if code is ErrorCode.transaction_abortable and version < ABORTABLE_FROM:
        return ErrorCode.invalid_txn_state
    return code


def _is_transactional(body: Any) -> bool:
    """Whether a batch belongs to a transaction: Kafka then wants a transactional id of the request as a whole."""
    return any(first_flags(data.records) & TRANSACTIONAL_BIT for data in _data(body))


def _transactional_producers(body: Any) -> set[tuple[int, int]]:
    """(id, epoch) of those whose transactions the batches belong to."""
    headers = (
        parse_header(data.records)
        for data in _data(body)
        if first_flags(data.records) & TRANSACTIONAL_BIT and len(data.records) >= HEADER_SIZE
    )
    return {(header.producer_id, header.producer_epoch) for header in headers if header.producer_id >= 0}


def _data(body: Any) -> Iterator[Any]:
    return (data for topic in body.topic_data for data in topic.partition_data)


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
