"""The log of __consumer_offsets as storage nodes keep it, in memory, with their failures on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from barnabas.coordinator.groups.codec import decode_batch
from barnabas.coordinator.groups.core.records import GroupLogRecord
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import iterate_headers


class LogInMemory:
    """Fakes the storage nodes: one log a partition, each with a coordinator epoch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.epochs: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.appends = 0
        """Those that landed."""
        self.tries = 0
        self.reads = 0
        self.gate: asyncio.Event | None = None
        """Closed: appends stall before anything was done."""
        self.fail_with: ErrorCode | None = None
        """Refuses every append with this code."""
        self.lose_answer = False
        """The next append lands, and its sender is not told."""
        self.lose_frame = False
        """The next append goes nowhere for now, and its sender is not told: `strays` has it."""
        self.strays: list[Callable[[], int]] = []

    async def append(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int | None
    ) -> int:
        self.tries += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.lose_frame:
            self.lose_frame = False
            self.strays.append(lambda: self._land(partition, coordinator_epoch, records, expected_end))
            raise KafkaError(ErrorCode.coordinator_not_available)
        first = self._land(partition, coordinator_epoch, records, expected_end)
        if self.lose_answer:
            self.lose_answer = False
            raise KafkaError(ErrorCode.coordinator_not_available)
        return first

    def _land(self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int | None) -> int:
        if coordinator_epoch != self.epochs.get(partition, 0):
            raise KafkaError(ErrorCode.not_coordinator)
        end = self.ends.get(partition, 0)
        if self.fail_with is not None:
            raise KafkaError(self.fail_with)
        if expected_end not in (None, end):
            raise KafkaError(ErrorCode.offset_out_of_range)
        self.appends += 1
        log = self.batches.setdefault(partition, [])
        for position, header in iterate_headers(records):
            log.append(records[position : position + header.size_in_bytes])
            self.ends[partition] = self.ends.get(partition, 0) + header.record_count
        return end

    async def read(self, partition: int, end_offset: int) -> AsyncIterator[bytes]:
        self.reads += 1
        for batch in list(self.batches.get(partition, [])):
            await asyncio.sleep(0)
            yield batch

    async def committed_end(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    def records(self, partition: int = 0) -> list[GroupLogRecord]:
        """All but the tombstones that mark a loading."""
        records = [
            record for batch in self.batches.get(partition, []) for record in decode_batch(memoryview(batch))
        ]
        return [record for record in records if record.group_id]
