"""The log of __consumer_offsets as storage nodes keep it, in memory, with their failures on demand.

What its leader knows of producers, and refuses them, is the storage nodes' own `ProducerState`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from barnabas.coordinator.groups.codec import decode_batch
from barnabas.coordinator.groups.core.records import GroupLogRecord, MarkerRecord
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.producers.producer_state import ProducerState
from barnabas.records.batch import iterate_headers
from barnabas.records.control import decode_marker


class LogInMemory:
    """Fakes the storage nodes: one log a partition, each with a coordinator epoch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.epochs: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.states: dict[int, ProducerState] = {}
        self.appends = 0
        """Those that landed."""
        self.tries = 0
        self.reads = 0
        self.is_here = False
        """Whether appends that nothing keeps land at once."""
        self.gate: asyncio.Event | None = None
        """Closed: appends stall before anything was done."""
        self.answer_gate: asyncio.Event | None = None
        """Closed: appends land, and their senders are not told yet."""
        self.refusal_gate: asyncio.Event | None = None
        """Closed: appends are refused, and their senders are not told yet."""
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
        refusal_gate = self.refusal_gate
        try:
            first = self._land(partition, coordinator_epoch, records, expected_end)
        except KafkaError:
            if refusal_gate is not None:
                await refusal_gate.wait()
            raise
        if self.lose_answer:
            self.lose_answer = False
            raise KafkaError(ErrorCode.coordinator_not_available)
        if self.answer_gate is not None:
            await self.answer_gate.wait()
        return first

    def append_at_once(
        self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int
    ) -> int | None:
        gates = self.gate, self.answer_gate, self.refusal_gate
        if not self.is_here or self.lose_frame or self.lose_answer or any(gates):
            return None
        try:
            first = self._land(partition, coordinator_epoch, records, expected_end)
        except KafkaError:
            return None
        self.tries += 1
        return first

    def _land(self, partition: int, coordinator_epoch: int, records: bytes, expected_end: int | None) -> int:
        if coordinator_epoch != self.epochs.get(partition, 0):
            raise KafkaError(ErrorCode.not_coordinator)
        end = self.ends.get(partition, 0)
        if self.fail_with is not None:
            raise KafkaError(self.fail_with)
        if expected_end not in (None, end):
            raise KafkaError(ErrorCode.offset_out_of_range)
        log = self.batches.setdefault(partition, [])
        state = self.states.setdefault(partition, ProducerState())
        batches = [
            (header, records[position : position + header.size_in_bytes])
            for position, header in iterate_headers(records)
        ]
        for header, batch in batches:
            marker = decode_marker(batch) if header.is_control else None
            if marker is not None:
                state.check_marker(header, marker)
                state.replay_marker(header, marker, self.ends.get(partition, 0))
            else:
                state.check(header, check_sequence=False)
                state.replay(header, self.ends.get(partition, 0), header.max_timestamp)
            log.append(batch)
            self.ends[partition] = self.ends.get(partition, 0) + header.record_count
        self.appends += 1
        return end

    async def read(self, partition: int, end_offset: int) -> AsyncIterator[bytes]:
        self.reads += 1
        for batch in list(self.batches.get(partition, [])):
            await asyncio.sleep(0)
            yield batch

    async def committed_end(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    async def producers(self, partition: int) -> list[LogProducer]:
        return [
            LogProducer(
                Producer(entry.producer_id, entry.producer_epoch),
                entry.coordinator_epoch,
                is_open=entry.current_transaction_first_offset >= 0,
            )
            for entry in self.states.setdefault(partition, ProducerState()).producers.values()
        ]

    def records(self, partition: int = 0) -> list[GroupLogRecord]:
        """All but the tombstones that mark a loading."""
        records = [
            record for batch in self.batches.get(partition, []) for record in decode_batch(memoryview(batch))
        ]
        return [record for record in records if isinstance(record, MarkerRecord) or record.group_id]
