"""Storage.OffsetForLeaderEpoch: where a leader epoch ends (KIP-101, KIP-320).

Answered from memory: the greatest epoch known that is at most the one asked for, and the first offset after it.
"""

from __future__ import annotations

from barnabas.messages.storage_pb2 import (
    EpochEndOffset,
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResult,
)
from barnabas.storage.replica.replicas import Replicas


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """One result per partition, in order."""
        return OffsetForLeaderEpochResponse(results=[self._find(item) for item in request.partitions])

    def _find(self, item: OffsetForLeaderEpochPartition) -> OffsetForLeaderEpochResult:
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            error = self._replicas.absence(item.topic_id, item.partition)
        else:
            error = replica.check_epoch(item.current_leader_epoch)
        if replica is None or error:
            return OffsetForLeaderEpochResult(
                error_code=error, end=EpochEndOffset(leader_epoch=-1, end_offset=-1)
            )
        assert replica.log is not None, "a leader has its log"
        epoch, end_offset = replica.log.end_offset_for_epoch(item.leader_epoch)
        return OffsetForLeaderEpochResult(end=EpochEndOffset(leader_epoch=epoch, end_offset=end_offset))
