"""Produce requests of one connection reach the storage nodes in its order, however long each has to be prepared."""

from __future__ import annotations

import asyncio
import gc
import itertools
import struct
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from gateway_harness import FakeStream, Gateway, decode_answer, node_record, request_frame, topic_records

from barnabas.gateway.clients.budget import ByteBudget, RefusalPace
from barnabas.gateway.clients.connection import CloseConnection, Connection
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.clients.held import Held
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Answer, Request, milliseconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult
from barnabas.records.record import encode_batch

PRODUCE: Final = 0
VERSION: Final = 9


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

    def __init__(self, *, prepares: bool = True) -> None:
        """Unless it `prepares`, requests are handed over as they come."""
        self.prepares = prepares
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
        )
        self.connection.connection_made(self.transport)

    def connect(self, node: int) -> None:
        """The node is reached, by a new stream."""
        self.gateway.node(node).appends.send = self._stream(node)

    def _stream(self, node: int) -> Callable[..., asyncio.Future[Any]]:
        def send(request: Any, size_bytes: int = 0, timeout_seconds: float | None = None) -> Any:
            key = node, request.head.timeout_ms
            self.sent.append(key)
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
        frames = [produce_frame(name, partitions, acks) for name in names]
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


def produce_frame(name: int, partitions: tuple[int, ...], acks: int) -> bytes:
    records = encode_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=name)
    data = [{"index": index, "records": records} for index in partitions]
    body = {
        "acks": acks,
        "timeout": name,
        "transactional_id": None,
        "topic_data": [{"name": "orders", "partition_data": data}],
    }
    return request_frame(PRODUCE, VERSION, body)


@pytest.fixture(autouse=True)
def _no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody takes is refused without a pause."""
    monkeypatch.setattr(Held, "next_pause_seconds", lambda _: 0.0)
    monkeypatch.setattr(RefusalPace, "pause_seconds", lambda *_: 0.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_prepared_first_waits_for_what_came_first() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(2)
    await run.prepared(3)
    assert (list(run.preparing), run.sent) == ([1, 2, 3], [])
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 2), (1, 3)]
    for name in (3, 2):
        await run.appended(1, name)
    assert run.answers() == [], "answers overlap as well, and leave in order"
    await run.appended(1, 1)
    assert run.answers() == [(0, 1), (0, 2), (0, 3)]
    assert run.budget.used_bytes == 0


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3, 4))))
async def test_the_order_holds_in_whatever_order_requests_are_prepared(order: tuple[int, ...]) -> None:
    run = Preparing()
    await run.produce(1, 2, partitions=(0, 1))
    await run.produce(3, 4, partitions=(1, 0))
    for name in order:
        await run.prepared(name)
    for node in (1, 2):
        assert [name for at, name in run.sent if at == node] == [1, 2, 3, 4]


async def test_one_partition_waits_for_another_of_the_same_connection() -> None:
    """The order is that of the connection: simple, and Kafka's."""
    run = Preparing()
    await run.produce(1)
    await run.produce(2, partitions=(1,))
    await run.prepared(2)
    assert run.sent == []
    await run.prepared(1)
    assert run.sent == [(1, 1), (2, 2)]


async def test_a_request_that_fails_while_it_is_prepared_lets_the_next_go_on() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(3)
    await run.prepared(2, KafkaError(ErrorCode.topic_authorization_failed))
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 3)]
    await run.appended(1, 1)
    await run.appended(1, 3)
    assert run.answers() == [(0, 1), (ErrorCode.topic_authorization_failed, -1), (0, 3)]


async def test_a_fault_of_ours_lets_the_next_go_on() -> None:
    run = Preparing()
    await run.produce(1, 2)
    await run.prepared(2)
    await run.prepared(1, RuntimeError("a bug"))
    assert run.sent == [(1, 2)]


async def test_a_request_that_ends_the_connection_takes_those_behind_it_along() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(2)
    await run.prepared(1, CloseConnection("it cannot be answered"))
    assert run.transport.closed
    assert (run.sent, run.cancelled) == ([], [3]), "2 waited for its turn, 3 was being prepared"
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.budget.used_bytes, run.connection._tasks) == ([], 0, set())


@pytest.mark.parametrize("ready", [(), (2,), (2, 3), (3,)])
async def test_a_client_that_closes_while_requests_are_prepared_has_nothing_sent(
    ready: tuple[int, ...],
) -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    for name in ready:
        await run.prepared(name)
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.budget.used_bytes, run.connection._tasks) == ([], 0, set())


async def test_a_client_that_closes_at_the_moment_a_turn_comes_has_nothing_sent() -> None:
    run = Preparing()
    await run.produce(1, 2)
    await run.prepared(2)
    run.preparing[1].set_exception(KafkaError(ErrorCode.invalid_record))
    await asyncio.sleep(0)  # 1 has passed its turn on, 2 has been woken and not run yet
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.connection._tasks) == ([], set())


async def test_unacknowledged_requests_keep_their_order_and_fail_with_the_connection() -> None:
    run = Preparing()
    await run.produce(1, 2, 3, acks=0)
    await run.prepared(2)
    assert run.sent == []
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 2)]
    await run.appended(1, 1, ErrorCode.message_too_large)
    assert run.transport.closed
    assert (run.sent, run.cancelled, run.transport.written) == ([(1, 1), (1, 2)], [3], [])


async def test_what_a_closed_connection_still_prepares_is_not_sent() -> None:
    """Even if it does not listen to its cancellation."""
    run = Preparing()
    stubborn: list[asyncio.Task[Any]] = []

    async def handle(request: Request) -> Answer:
        stubborn.append(asyncio.ensure_future(HANDLERS[PRODUCE].handle(request)))
        return await asyncio.shield(stubborn[-1])

    async def prepare(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await handle(request)
        raise AssertionError

    run._handle = prepare  # type: ignore[method-assign]
    handlers = {PRODUCE: replace(HANDLERS[PRODUCE], handle=prepare)}
    run.connection._serve = Dispatcher(handlers, run.gateway.parts, RequestMetrics()).serve
    await run.produce(1)
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, [each.cancelled() for each in stubborn]) == ([], [True])


async def test_other_requests_are_in_nobodys_way() -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(lambda _: AppendResult(partitions=[PartitionAppendResult(base_offset=3)])))
    frame = produce_frame(1, (0,), -1)
    for _ in range(2):
        pieces = await gateway.dispatcher.serve(frame, gateway.client)
        assert isinstance(pieces, bytes)
        answer = decode_answer(PRODUCE, VERSION, pieces)
        assert answer.responses[0].partition_responses[0].base_offset == 3


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Unreachable("the stream broke"), ErrorCode.not_leader_or_follower),
        (OutcomeUnknown("the stream broke"), ErrorCode.request_timed_out),
        (appended(-1, ErrorCode.not_leader_or_follower), ErrorCode.not_leader_or_follower),
    ],
    ids=["not sent", "perhaps written", "refused"],
)
async def test_what_starts_at_the_moment_a_batch_fails_does_not_leave_before_it(
    outcome: Exception | AppendResult, code: ErrorCode
) -> None:
    run = Preparing(prepares=False)
    await run.produce(1)
    run.receive(2)  # its task runs before that of 1 is woken
    if isinstance(outcome, Exception):
        run.appends[1, 1].set_exception(outcome)
    else:
        run.appends[1, 1].set_result(outcome)
    await settle()
    assert (run.sent, run.answers()) == ([(1, 1)], [(code, -1), (code, -1)])
    await run.produce(1, 2)
    assert run.sent == [(1, 1)] * 2 + [(1, 2)], "sent again, in order"


async def test_a_batch_that_failed_holds_up_what_is_behind_it_while_other_leaders_still_append() -> None:
    run = Preparing(prepares=False)
    await run.produce(1, partitions=(0, 1))
    run.appends[1, 1].set_exception(Unreachable("the stream broke"))
    await settle()
    await run.produce(2)
    assert run.sent == [(1, 1), (2, 1)]
    await run.appended(2, 1)
    code = ErrorCode.not_leader_or_follower
    assert run.answers() == [(code, -1), (code, -1)]


async def test_what_goes_to_another_leader_waits_for_what_is_under_way_to_the_former() -> None:
    run = Preparing(prepares=False)
    await run.produce(1)
    await run.produce(1, partitions=(1,))
    run.gateway.metadata.apply(*topic_records("orders", [2, 2, -1]))
    await run.produce(2)
    await run.produce(2, partitions=(1,))
    await run.produce(3)
    assert run.sent == [(1, 1), (2, 1), (2, 2)], "the other partition has kept its leader"
    await run.appended(1, 1)
    await run.produce(2, 3)
    assert run.sent[3:] == [(2, 2), (2, 3)], "in order, when the client sends them again"


async def test_what_goes_to_a_node_that_came_back_waits_for_what_is_under_way_to_the_former_one() -> None:
    run = Preparing(prepares=False)
    await run.produce(1)
    run.connect(1)
    run.gateway.metadata.apply(node_record(1, rack="elsewhere"))
    await run.produce(2)
    assert run.sent == [(1, 1)]
    run.appends[1, 1].set_exception(OutcomeUnknown("the stream broke"))
    await settle()
    assert [code for code, _ in run.answers()] == [
        ErrorCode.request_timed_out,
        ErrorCode.not_leader_or_follower,
    ]
    await run.produce(2)
    assert run.sent == [(1, 1)], "1 comes first"
    await run.produce(1, 2)
    assert run.sent[1:] == [(1, 1), (1, 2)]


async def test_who_looks_for_failures_first_does_not_end_the_wait_of_others() -> None:
    run = Preparing(prepares=False)
    await run.produce(1, 2)
    run.receive(3)
    run.appends[1, 2].set_result(appended(2))
    await settle()
    assert (run.sent, run.answers()) == ([(1, 1), (1, 2), (1, 3)], [])
    await run.appended(1, 1)
    await run.appended(1, 3)
    assert run.answers() == [(0, 1), (0, 2), (0, 3)]
    assert run.gateway.client.unsettled._sends == {}


async def test_a_lost_connection_goes_at_once_with_the_requests_that_it_had_under_way() -> None:
    client = Preparing(prepares=False)
    await client.produce(0, 1)
    await client.produce(2, 3, partitions=(0, 1))
    client.prepares = True
    await client.produce(4)
    assert (len(client.sent), client.gateway.client.unsettled._sends != {}) == (6, True)
    left = weakref.ref(client.connection)
    gc.collect()
    gc.disable()
    try:
        client.connection.connection_lost(None)
        del client.connection
        await settle()
        assert left() is None
        assert client.gateway.client.unsettled._sends == {}  # they know the records
    finally:
        gc.enable()


async def test_a_connection_with_too_many_gaps_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To forget one would let pass what is behind it."""
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 2)
    run = Preparing(prepares=False)
    await run.produce(1, 2, partitions=(7, 8))  # there are no such partitions
    assert (run.transport.closed, len(run.answers())) == (False, 2)
    await run.produce(3, partitions=(9,))
    assert (run.transport.closed, len(run.answers())) == (True, 2)


async def test_what_is_refused_behind_a_gap_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 2)
    run = Preparing(prepares=False)
    await run.produce(1, partitions=(7,))
    await run.produce(2, partitions=(7, 0, 1))
    assert (run.transport.closed, run.sent, len(run.answers())) == (True, [], 1)


async def test_nothing_gets_past_the_gap_that_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 0)
    run = Preparing(prepares=False)
    await run.produce(1)
    run.appends[1, 1].set_result(appended(0, ErrorCode.not_leader_or_follower))
    run.receive(2, 3)
    await settle()
    assert (run.transport.closed, run.sent, run.answers()) == (True, [(1, 1)], [])
