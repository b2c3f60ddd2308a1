"""Storage.DescribeProducers: whose sequences a partition remembers, and which transactions are open (KIP-664).

Answered from memory.
"""

from __future__ import annotations

from barnabas.messages.storage_pb2 import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionOfTopic,
    PartitionProducers,
    ProducerDescription,
)
from barnabas.storage.replica.replicas import Replicas


class DescribeProducersHandler:
    """Answers DescribeProducers."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        """One result per partition, in order."""
        return DescribeProducersResponse(results=[self._describe(item) for item in request.partitions])

    def _describe(self, item: PartitionOfTopic) -> PartitionProducers:
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            return PartitionProducers(error_code=self._replicas.absence(item.topic_id, item.partition))
        if replica.error:
            return PartitionProducers(error_code=replica.error)
        assert replica.log is not None, "a leader has its log"
        return PartitionProducers(
            producers=[
                ProducerDescription(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp_ms=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_transaction_start_offset=entry.current_transaction_first_offset,
                )
                # A copy: idle producers are forgotten in another thread.
                for entry in list(replica.log.producer_state.producers.values())
            ]
        )
