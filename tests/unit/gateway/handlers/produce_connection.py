"""A connection to a gateway whose Produce requests a test prepares, hands over and answers one by one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from gateway_harness import Gateway, decode_answer, request_frame

from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.connection import Connection
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.forwarded_produce import ForwardedProduces
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Answer, Request, milliseconds
from barnabas.messages.storage_pb2 import AppendResult, AppendTransaction, PartitionAppendResult
from barnabas.records.record import encode_batch

PRODUCE: Final = 0
VERSION: Final = 9

EITHER_WAY: Final = pytest.mark.parametrize("forwards", [False, True], ids=["in tasks", "as they are read"])
"""Where no batch is special it goes to its leader as it is read, until something is."""


class Transport(asyncio.Transport):
    """What is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Preparing:
    """A connection to a gateway whose Produce requests, told apart by their timeout, wait to be prepared by the test.

    `orders` has its partition 0 at node 1 and 1 at node 2; what they get is in `sent`, as (node, request).
    """

    def __init__(
        self,
        *,
        prepares: bool = True,
        forwards: bool = False,
        is_idempotent: bool = True,
        transactional_id: str | None = None,
    ) -> None:
        """Unless it `prepares`, requests are handed over as they come: as they are read if it `forwards`."""
        self.prepares = prepares
        self._transactional_id = transactional_id
        self.transactions: list[AppendTransaction | None] = []
        """What the leaders were told of the transaction, in the order of `sent`."""
        self._producer_id = 7 if is_idempotent else -1
        self.partitions_sent: list[tuple[int, list[int]]] = []
        self.sent: list[tuple[int, int]] = []
        self.appends: dict[tuple[int, int], asyncio.Future[Any]] = {}
        self.preparing: dict[int, asyncio.Future[None]] = {}
        self.cancelled: list[int] = []
        self.gateway = Gateway()
        for node in (1, 2):
            self.connect(node)
        handlers = {PRODUCE: replace(HANDLERS[PRODUCE], handle=self._handle)}
        dispatcher = Dispatcher(handlers, self.gateway.parts, RequestMetrics())
        self.budget = ByteBudget(1 << 30, lambda: None)
        self.transport = Transport()
        self.connection = Connection(
            lambda _: self.gateway.client,
            dispatcher.serve,
            self.budget,
            lambda _: None,
            1 << 20,
            RequestMetrics(),
            ConnectionMetrics(self.budget),
            forward=ForwardedProduces(self.gateway.parts, Faults()).forward if forwards else None,
        )
        self.connection.connection_made(self.transport)

    def connect(self, node: int) -> None:
        """The node is reached, by a new stream."""
        self.gateway.node(node).appends.send = self._stream(node)

    def _stream(self, node: int) -> Callable[..., asyncio.Future[Any]]:
        def send(request: Any, size_bytes: int = 0, timeout_seconds: float | None = None) -> Any:
            key = node, request.head.timeout_ms
            self.sent.append(key)
            head = request.head
            self.transactions.append(head.transaction if head.HasField("transaction") else None)
            self.partitions_sent.append((node, [each.partition for each in request.partitions]))
            self.appends[key] = asyncio.get_running_loop().create_future()
            return self.appends[key]

        return send

    async def _handle(self, request: Request) -> Answer:
        """As an authorizer would, or whoever verifies a transaction."""
        name = milliseconds(request.body.timeout)
        if not self.prepares:
            return await HANDLERS[PRODUCE].handle(request)
        self.preparing[name] = asyncio.get_running_loop().create_future()
        try:
            await self.preparing[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return await HANDLERS[PRODUCE].handle(request)

    def receive(self, *names: int, partitions: tuple[int, ...] = (0,), acks: int = -1) -> None:
        frames = [
            produce_frame(name, partitions, acks, self._producer_id, self._transactional_id) for name in names
        ]
        self.connection.data_received(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    async def produce(self, *names: int, partitions: tuple[int, ...] = (0,), acks: int = -1) -> None:
        self.receive(*names, partitions=partitions, acks=acks)
        await settle()

    async def prepared(self, name: int, error: Exception | None = None) -> None:
        if error is None:
            self.preparing[name].set_result(None)
        else:
            self.preparing[name].set_exception(error)
        await settle()

    async def appended(self, node: int, name: int, code: int = 0) -> None:
        self.appends[node, name].set_result(appended(name, code))
        await settle()

    def answers(self) -> list[tuple[int, int]]:
        """(error code, offset) of the first partition of each answer."""
        parts = [
            decode_answer(PRODUCE, VERSION, frame).responses[0].partition_responses[0]
            for frame in self.transport.written
        ]
        return [(int(part.error_code), part.base_offset) for part in parts]


def appended(offset: int, code: int = 0) -> AppendResult:
    return AppendResult(partitions=[PartitionAppendResult(error_code=code, base_offset=offset)])


def produce_frame(
    name: int,
    partitions: tuple[int, ...],
    acks: int,
    producer_id: int = 7,
    transactional_id: str | None = None,
) -> bytes:
    epoch, sequence = (0, name) if producer_id >= 0 else (-1, -1)
    records = encode_batch(
        [(0, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional_id is not None,
    )
    data = [{"index": index, "records": records} for index in partitions]
    body = {
        "acks": acks,
        "timeout": name,
        "transactional_id": transactional_id,
        "topic_data": [{"name": "orders", "partition_data": data}],
    }
    return request_frame(PRODUCE, VERSION, body)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
