"""Producer ids, handed out from blocks that the controller issues (KIP-730)."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.messages.controller_pb2 import AllocateProducerIdsRequest
from barnabas.metadata.subscription import MetadataSubscription

CALL_SECONDS_MAX: Final = 10.0
"""How long the controller may take to issue a block."""

NEXT_BLOCK_AT: Final = 0.1
"""The next block is asked for when only this part of the present one is left."""


class ProducerIds:
    """Owns this service's present block of ids and the next one. No id is handed out twice, by any service, ever."""

    def __init__(self, metadata: MetadataSubscription) -> None:
        self._metadata = metadata
        self._present = range(0)
        self._next = range(0)
        self._next_is_due_at = 0
        """How many ids of the present block are left when the next block is asked for."""
        self._asking: asyncio.Task[bool] | None = None
        self._refused = "none was asked for yet"

    async def allocate(self) -> int:
        """A producer id that nobody had before.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS), as Kafka's brokers do, when no controller gives a block:
        producers retry on it, and older ones would die of REQUEST_TIMED_OUT.
        """
        while not self.has_some:
            if not await self.wait_for_block():
                raise self._none()
        return self.draw()

    def draw(self) -> int:
        """The same, but of those that are at hand: what is asked for then comes later.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) when there is none.
        """
        if not self._present:
            self._present, self._next = self._next, range(0)
            self._next_is_due_at = int(len(self._present) * NEXT_BLOCK_AT)
        if not self._present:
            self._ask()
            raise self._none()
        producer_id, self._present = self._present[0], self._present[1:]
        if len(self._present) <= self._next_is_due_at and not self._next:
            self._ask()
        return producer_id

    @property
    def has_some(self) -> bool:
        """Whether `draw` has one to give."""
        return bool(self._present or self._next)

    async def wait_for_block(self) -> bool:
        """Whether the controller gave another block, once that is known. Who waits with others may find it used up."""
        # Shielded: others may wait for the same block.
        return await asyncio.shield(self._ask())

    async def close(self) -> None:
        """Ask for nothing more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _ask(self) -> asyncio.Task[bool]:
        """Ask for the next block, unless that is under way."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._take_block(), name="producer ids")
        return self._asking

    async def _take_block(self) -> bool:
        try:
            block = await self._metadata.controller.AllocateProducerIds(
                AllocateProducerIdsRequest(), timeout=CALL_SECONDS_MAX
            )
        except LinkError as error:
            self._refused = str(error)
            return False
        self._next = range(block.first_producer_id, block.first_producer_id + block.count)
        return True

    def _none(self) -> KafkaError:
        reason = f"no producer ids from the controller: {self._refused}"
        return KafkaError(ErrorCode.coordinator_load_in_progress, reason)
