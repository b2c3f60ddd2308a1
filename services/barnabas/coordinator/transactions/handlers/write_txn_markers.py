"""WriteTxnMarkers (key 27): an administrator ends in some partitions what hangs there (KIP-664).

Each marker is sent once, whatever is known of the transaction, and so many at a time that others are served in between:
one request may bring thousands. The owners of offsets answer as Kafka's leaders do.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import (
    TransactionMarker,
    TransactionPartitionsResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_OWNER_AWAY: Final = frozenset(
    (
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    )
)


async def _handle(
    coordinator: TransactionCoordinator, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for start in range(0, len(request.markers), limits.WRITTEN_MARKERS_AT_ONCE):
        some = request.markers[start : start + limits.WRITTEN_MARKERS_AT_ONCE]
        response.markers.extend(await asyncio.gather(*(_write(coordinator, each) for each in some)))
        await asyncio.sleep(0)  # where nobody leads, nothing was waited for
    return response


async def _write(coordinator: TransactionCoordinator, item: TransactionMarker) -> TransactionPartitionsResult:
    marker = Marker(
        item.producer_id,
        item.producer_epoch,
        item.committed,
        item.coordinator_epoch,
        item.transaction_version,
    )
    codes = await coordinator.markers.send_once(marker, _partitions(item))
    return TransactionPartitionsResult(error_codes=[_for_administrators(code) for code in codes])


def _for_administrators(code: ErrorCode) -> ErrorCode:
    return ErrorCode.not_leader_or_follower if code in _OWNER_AWAY else code


def _partitions(item: TransactionMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in item.topics for partition in topic.partitions]


def _refuse(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            TransactionPartitionsResult(error_codes=[error.code] * len(_partitions(each)))
            for each in request.markers
        ]
    )


WRITE_TXN_MARKERS = Handler("WriteTxnMarkers", _handle, _refuse)
