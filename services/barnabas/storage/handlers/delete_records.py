"""Storage.DeleteRecords: moves the start of a log forward (KIP-107).

The records before it cannot be read from then on; their segments go with the next look at retention. Followers hear of
it and follow, and it is answered once all have that may come to lead.
"""

from __future__ import annotations

import asyncio
from functools import partial

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import HIGH_WATERMARK
from barnabas.messages.storage_pb2 import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResult,
)
from barnabas.storage import limits
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas


class DeleteRecordsHandler:
    """Answers DeleteRecords. Leader epochs are written down anew, in a thread of each log directory."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """One result per partition, in order; no partition's failure touches another."""
        wait_ms = min(max(0, request.timeout_ms), limits.WAIT_MS_MAX)
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1000
        return DeleteRecordsResponse(
            results=await asyncio.gather(*(self._answer(item, ends_at) for item in request.partitions))
        )

    async def _answer(self, item: DeleteRecordsPartition, ends_at: float) -> DeleteRecordsResult:
        try:
            return DeleteRecordsResult(low_watermark=await self._delete(item, ends_at))
        except KafkaError as error:
            return DeleteRecordsResult(error_code=int(error.code), low_watermark=-1)

    async def _delete(self, item: DeleteRecordsPartition, ends_at: float) -> int:
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            raise KafkaError(ErrorCode(self._replicas.absence(item.topic_id, item.partition)))
        _check(replica)
        assert replica.log is not None, "a leader has its log"
        offset = replica.high_watermark if item.before_offset == HIGH_WATERMARK else item.before_offset
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not in 0 to {replica.high_watermark}, the high watermark",
            )
        assert replica.lane is not None, "a log has its lane"
        await replica.lane.run(replica.lane.read, partial(_move_start, replica, offset))
        replica.on_log_start_moved()
        seconds = ends_at - asyncio.get_running_loop().time()
        return await replica.deletions.wait(offset, self._replicas.image.eligible_epochs, seconds)


def _move_start(replica: Replica, offset: int) -> bool:
    assert replica.log is not None, "a leader has its log"
    return replica.log.maybe_increment_log_start_offset(offset)  # the log that it has now


def _check(replica: Replica) -> None:
    if replica.error:
        raise KafkaError(ErrorCode(replica.error))
    if replica.internal:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"records of {replica.topic} may not be deleted")
    policy = replica.settings.log.cleanup_policy
    if "compact" in policy and "delete" not in policy:
        raise KafkaError(ErrorCode.policy_violation, "cleanup.policy must have delete")
