"""Producer ids, handed out from blocks that the controller issues."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.messages.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.metadata.subscription import MetadataSubscription


class ProducerIds:
    """Owns this gateway's current block. No id is handed out twice, by any gateway, ever."""

    def __init__(self, metadata: MetadataSubscription) -> None:
        self._metadata = metadata
        self._next_id = 0
        self._end = 0
        self._refilling = asyncio.Lock()

    async def allocate(self) -> int:
        """A producer id that nobody had before.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS), as Kafka's brokers do, when no controller gives a block:
        producers retry on it, and older ones would die of REQUEST_TIMED_OUT.
        """
        while self._next_id == self._end:
            async with self._refilling:
                if self._next_id == self._end:
                    block = await self._next_block()
                    self._next_id = block.first_producer_id
                    self._end = block.first_producer_id + block.count
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def _next_block(self) -> AllocateProducerIdsResponse:
        try:
            return await self._metadata.controller.AllocateProducerIds(
                AllocateProducerIdsRequest(), timeout=limits.CALL_TIMEOUT_SECONDS
            )
        except LinkError as error:
            reason = f"no producer ids from the controller: {error}"
            raise KafkaError(ErrorCode.coordinator_load_in_progress, reason) from error
