"""Idempotent producers that send several batches ahead on one connection, and again what was not taken."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Mapping
from typing import Final

from gateway_harness import decode_answer, request_frame
from produce_connection import PRODUCE, VERSION, Preparing
from produce_order_nodes import FAILURES, NOT_LEADER, OUT_OF_ORDER, Lane, Log, Trace

from barnabas.gateway.clients.sequence_gaps import IN_FLIGHT_MAX
from barnabas.kernel.errors import ErrorCode
from barnabas.records.record import encode_batch

PRODUCERS: Final = (1, 1, 2)
"""At the same time: what a seed has."""

BATCHES: Final = 4
"""Of a producer in each partition. One whose batches were all acknowledged is followed by one that nobody knows."""

TOLD: Final = frozenset({ErrorCode.none, NOT_LEADER, OUT_OF_ORDER, *FAILURES})
"""What a client may be told; anything else is a fault."""


class Producer:
    """Owns what one producer has to send, and what became of it."""

    def __init__(self, producer_id: int, partitions: int) -> None:
        self.id = producer_id
        self.to_send = {partition: list(range(BATCHES)) for partition in range(partitions)}
        self.under_way: deque[Mapping[int, int]] = deque()
        """Requests: the sequence for each partition."""
        self.failed = {partition: set[int]() for partition in range(partitions)}
        """What was refused at least once."""
        self.acknowledged = {partition: set[int]() for partition in range(partitions)}

    @property
    def is_done(self) -> bool:
        return all(len(sequences) == BATCHES for sequences in self.acknowledged.values())

    def is_ready(self, partition: int, *, is_careful: bool) -> bool:
        """Whether there is something to be sent; if it `is_careful`, as Java's sends it again: what was refused goes
        once everything before it was acknowledged, and nothing overtakes it.
        """
        if not self.to_send[partition]:
            return False
        sequence = self.to_send[partition][0]
        if not is_careful or sequence not in self.failed[partition]:
            return True
        return all(sequence < sent.get(partition, BATCHES) for sent in self.under_way)


class Producers:
    """Owns the producers of one connection, and what they have under way on it."""

    def __init__(self, run: Preparing, chance: random.Random, trace: Trace, partitions: int) -> None:
        self._run = run
        self._chance = chance
        self._trace = trace
        self._partitions = partitions
        self._is_careful = chance.random() < 0.4
        self._timeout_ms = chance.choice((30_000, 30_000, 400))
        self._last_id = 6
        self._producers = [self._new_producer() for _ in range(chance.choice(PRODUCERS))]
        self._under_way: deque[Producer] = deque()
        """Whose requests, in the order of the connection."""

    @property
    def are_done(self) -> bool:
        return not self._under_way and all(producer.is_done for producer in self._producers)

    def start_others(self) -> None:
        """In the place of those that are done."""
        self._producers = [
            self._new_producer() if producer.is_done else producer for producer in self._producers
        ]

    def send_any(self) -> bool:
        """A request for one or two partitions; False where there is none, or too many are under way."""
        producer = self._chance.choice(self._producers)
        ready = [
            partition
            for partition in producer.to_send
            if producer.is_ready(partition, is_careful=self._is_careful)
        ]
        if not ready or len(producer.under_way) == IN_FLIGHT_MAX:
            return False
        chosen = self._chance.sample(ready, self._chance.randint(1, min(2, len(ready))))
        sequences = {partition: producer.to_send[partition].pop(0) for partition in chosen}
        self._trace.note(f"{producer.id} sends {sequences}")
        producer.under_way.append(sequences)
        self._under_way.append(producer)
        frame = self._frame(producer.id, sequences)
        self._run.connection.data_received(struct.pack(">i", len(frame)) + frame)
        return True

    def read(self, logs: Mapping[Lane, Log]) -> None:
        """What was answered meanwhile."""
        for frame in self._run.transport.written:
            if not self._under_way:
                self._trace.blame("an answer to nothing")
                break
            producer = self._under_way.popleft()
            sent = producer.under_way.popleft()
            answers = decode_answer(PRODUCE, VERSION, frame).responses[0].partition_responses
            if sorted(answer.index for answer in answers) != sorted(sent):
                self._trace.blame(f"an answer to something else than {sent} of {producer.id}")
                break
            for answer in answers:
                lane = producer.id, answer.index
                code = ErrorCode(answer.error_code)
                self._on_answer(producer, answer.index, sent[answer.index], code, logs[lane])
        self._run.transport.written.clear()

    def _on_answer(
        self, producer: Producer, partition: int, sequence: int, code: ErrorCode, log: Log
    ) -> None:
        acknowledged = producer.acknowledged[partition]
        told = f"{producer.id}/{partition}:{sequence} is told {code.name}"
        self._trace.note(told)
        if code not in TOLD:
            self._trace.blame(told)
        if code is ErrorCode.none:
            if sequence > log.end:
                self._trace.blame(f"{told} although the log ends with {log.end}")
            acknowledged.add(sequence)
            return
        if code is OUT_OF_ORDER and acknowledged.issuperset(range(sequence)):
            self._trace.blame(f"{told} although all before it were acknowledged")
        producer.failed[partition].add(sequence)
        producer.to_send[partition] = sorted({*producer.to_send[partition], sequence})

    def _new_producer(self) -> Producer:
        self._last_id += 1
        return Producer(self._last_id, self._partitions)

    def _frame(self, producer_id: int, sequences: Mapping[int, int]) -> bytes:
        data = [
            {
                "index": partition,
                "records": encode_batch(
                    [(0, None, b"v", ())],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                ),
            }
            for partition, sequence in sequences.items()
        ]
        body = {
            "acks": -1,
            "timeout": self._timeout_ms,
            "transactional_id": None,
            "topic_data": [{"name": "orders", "partition_data": data}],
        }
        return request_frame(PRODUCE, VERSION, body)
