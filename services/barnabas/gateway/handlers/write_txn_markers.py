"""WriteTxnMarkers (key 27): markers into partitions, for an administrator who ends a transaction that hangs (KIP-664).

v1 is flexible and the first that Kafka 4 has, v2 says the version of the transaction (KIP-1228). Any coordinator of
transactions writes them, each once; those of transactions that it ends itself do not come this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.inside.transaction_calls import TV0, call_any_transactions
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import (
    TransactionMarker,
    TransactionPartitionsResult,
    TransactionTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS

_Codes = dict[str, dict[int, int]]
"""The error code of each partition, by topic."""

_NOT_WRITTEN: Final = NOBODY_LEADS
"""What administrators' clients look for the leader again on, and send the marker again; on other codes they give up."""


async def handle(request: Request) -> Answer:
    image, markers = request.image, request.body.markers
    answers: dict[int, _Codes] = {}
    messages = []
    for marker in markers:
        codes = answers.setdefault(marker.producer_id, {}) if _names_a_partition(marker) else {}
        message = _message(image, marker, codes)
        if message.topics:
            messages.append(message)
    if messages:
        response = await call_any_transactions(
            request,
            lambda coordinator: coordinator.WriteTxnMarkers(
                WriteTxnMarkersRequest(markers=messages), timeout=limits.CALL_TIMEOUT_SECONDS
            ),
            lambda: _refused(messages),
        )
        for message, result in zip(messages, response.markers, strict=True):
            told = iter(result.error_codes)
            for topic in message.topics:
                for index in topic.partitions:
                    answers[message.producer_id].setdefault(topic.name, {})[index] = next(told)
    # As in Kafka, markers of one producer have one place in the answer.
    return {"markers": [_row(producer_id, codes) for producer_id, codes in answers.items()]}


def _names_a_partition(marker: Any) -> bool:
    return any(topic.partition_indexes for topic in marker.topics)


def _message(image: MetadataImage, marker: Any, codes: _Codes) -> TransactionMarker:
    """The marker for the partitions that exist; what does not goes into `codes`."""
    message = TransactionMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=getattr(marker, "transaction_version", TV0),
    )
    existing: dict[str, dict[int, None]] = {}
    for name, index in _partitions(marker):
        topic = image.topics.get(name)
        if topic is not None and 0 <= index < len(topic.partitions):
            existing.setdefault(name, {})[index] = None
        else:
            codes.setdefault(name, {})[index] = ErrorCode.unknown_topic_or_partition
    message.topics.extend(
        TransactionTopic(name=name, partitions=indexes) for name, indexes in existing.items()
    )
    return message


def _partitions(marker: Any) -> Iterator[tuple[str, int]]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _refused(messages: list[TransactionMarker]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            TransactionPartitionsResult(
                error_codes=[_NOT_WRITTEN for topic in message.topics for _ in topic.partitions]
            )
            for message in messages
        ]
    )


def _row(producer_id: int, codes: _Codes) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in found.items()],
        }
        for name, found in codes.items()
    ]
    return {"producer_id": producer_id, "topics": topics}


HANDLER = Handler(api_key=27, versions=(1, 2), handle=handle, unanswered=_NOT_WRITTEN)
