"""Storage.ListOffsets: where in a partition a timestamp, or one of the log's ends, is found.

Timestamps: -1 latest (the high watermark, or the last stable offset under read committed), -2 earliest, -3 the
record with the highest timestamp (KIP-734), -4 earliest local (KIP-405), -5 latest tiered (KIP-1005) and -6 earliest
pending upload; anything else is looked up exact to the record, in a thread; a log directory that does not
answer fails its own partitions with KAFKA_STORAGE_ERROR.

A leader that does not know yet how far its predecessor had come answers OFFSET_NOT_AVAILABLE where that could be later
than what it knows (KIP-207).

Knowingly missing: tiered storage, so that -4 is the log start offset and -5 and -6 find nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READ_COMMITTED,
)
from barnabas.kernel.logs import get_logger
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.timestamp_lookup import TimestampedOffset
from barnabas.messages.storage_pb2 import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from barnabas.storage.replica.replicas import Replicas

NOTHING: Final = TimestampedOffset(-1, -1, -1)

log = get_logger("storage.list_offsets")


class ListOffsetsHandler:
    """Answers ListOffsets."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """One result per partition, in order; no partition's failure touches another.

        Waits for logs that are about to be opened: who just created a topic asks so until it can be used.
        """
        await self._replicas.wait_until_open((item.topic_id, item.partition) for item in request.partitions)
        found = await asyncio.gather(
            *(self._answer(item, request.isolation_level) for item in request.partitions)
        )
        return ListOffsetsResponse(results=found)

    async def _answer(self, item: ListOffsetsPartition, isolation_level: int) -> ListOffsetsResult:
        try:
            found = await self._find(item, isolation_level)
        except KafkaError as error:
            return ListOffsetsResult(error_code=int(error.code), offset=-1, timestamp_ms=-1, leader_epoch=-1)
        return ListOffsetsResult(
            offset=found.offset, timestamp_ms=found.timestamp, leader_epoch=found.leader_epoch
        )

    async def _find(self, item: ListOffsetsPartition, isolation_level: int) -> TimestampedOffset:
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            raise KafkaError(ErrorCode(self._replicas.absence(item.topic_id, item.partition)))
        error = replica.check_epoch(item.current_leader_epoch)
        if error:
            raise KafkaError(ErrorCode(error))
        assert replica.log is not None, "a leader has its log"
        committed = isolation_level == READ_COMMITTED
        bound = replica.last_stable_offset if committed else replica.high_watermark
        wanted = item.timestamp_ms
        if wanted == LATEST:
            if not replica.is_high_watermark_known:
                raise KafkaError(ErrorCode.offset_not_available)
            return TimestampedOffset(bound, -1, replica.log.latest().leader_epoch)
        if wanted in (EARLIEST, EARLIEST_LOCAL):
            return replica.log.earliest()
        if wanted in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOTHING
        if wanted < MAX_TIMESTAMP:
            raise KafkaError(ErrorCode.unsupported_version, f"there is no timestamp {wanted}")
        assert replica.lane is not None, "a log has its lane"
        found = await replica.lane.run(replica.lane.read, partial(_look_up, replica.log, wanted))
        if found is not None and found.offset < bound:
            return found
        if not replica.is_high_watermark_known:
            raise KafkaError(ErrorCode.offset_not_available)
        return NOTHING


def _look_up(opened: PartitionLog, timestamp_ms: int) -> TimestampedOffset | None:
    if timestamp_ms == MAX_TIMESTAMP:
        return opened.max_timestamp()
    return opened.offset_for_timestamp(timestamp_ms)
