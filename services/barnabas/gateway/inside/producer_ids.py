"""Producer ids, handed out from blocks that the controller issues."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.v1.controller_pb2 import AllocateProducerIdsRequest


class ProducerIds:
    """Owns this gateway's current block. No id is handed out twice, by any gateway, ever."""

    def __init__(self, metadata: MetadataSubscription) -> None:
        self._metadata = metadata
        self._next_id = 0
        self._end = 0
        self._refilling = asyncio.Lock()

    async def allocate(self) -> int:
        """A producer id that nobody had before. Raises grpc.aio.AioRpcError when the controller cannot be reached."""
        while self._next_id == self._end:
            async with self._refilling:
                if self._next_id == self._end:
                    block = await self._metadata.controller.AllocateProducerIds(
                        AllocateProducerIdsRequest(), timeout=limits.CALL_TIMEOUT_SECONDS
                    )
                    self._next_id = block.first_producer_id
                    self._end = block.first_producer_id + block.count
        producer_id = self._next_id
        self._next_id += 1
        return producer_id
