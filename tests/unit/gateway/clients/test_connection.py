"""One connection: order of answers, overlap of produce requests, reading paused by bytes, and its end."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest
from gateway_harness import LISTENER

from barnabas.gateway.clients import connection as connection_module
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.connection import CloseConnection, Connection
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.clients.held import Reason
from barnabas.gateway.clients.turns import Turn
from barnabas.gateway.clients.unread_answers import UnreadAnswers
from barnabas.gateway.handlers.table import WAITING_KEYS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Client
from barnabas.gateway.request_times import RequestTimes
from barnabas.wire.requests import MalformedRequest

PRODUCE, OTHER = 0, 3


class FakeTransport(asyncio.Transport):
    """Remembers what is written and whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.paused = False
        self.closed = False
        self.ended = False
        self.aborted = False
        self.unsent_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.written.append(b"".join(pieces))

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True


class Served:
    """A connection whose requests a test answers: `started` in order, `answer(name)` to finish one."""

    def __init__(self, *, budget_bytes: int = 10**9) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.lost: list[Connection] = []
        self.times: dict[str, RequestTimes] = {}
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self.transport = FakeTransport()
        self.budget = ByteBudget(budget_bytes, lambda: self.connection.budget_has_room())
        self.pauses = ConnectionMetrics(self.budget)
        self.unread = UnreadAnswers()
        self.client = Client(1, "10.1.1.1", "127.0.0.1", LISTENER)
        self.connection = Connection(
            lambda _: self.client,
            self._serve,
            self.budget,
            self.lost.append,
            frame_bytes_max=100_000_000,
            requests=RequestMetrics(),
            pauses=self.pauses,
            unread=self.unread,
            waiting_keys=WAITING_KEYS,
        )
        self.connection.connection_made(self.transport)

    async def _serve(self, frame: bytes, client: Client, times: RequestTimes, turn: Turn) -> Any:
        name = frame[2:].decode().rstrip(".")
        self.started.append(name)
        self.times[name] = times
        self._waiting[name] = asyncio.get_running_loop().create_future()
        try:
            return await self._waiting[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    async def send(self, api_key: int, *names: str, size: int = 0) -> None:
        frames = [struct.pack(">h", api_key) + name.encode().ljust(size, b".") for name in names]
        self.connection.data_received(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        await self.settle()

    async def answer(self, name: str, result: bytes | list[bytes] | Exception | None) -> None:
        if isinstance(result, Exception):
            self._waiting[name].set_exception(result)
        else:
            self._waiting[name].set_result(result)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What connections log as warnings."""
    told: list[dict[str, Any]] = []

    class Log:
        def bind(self, **_: Any) -> Log:
            return self

        def warning(self, event: str, **values: Any) -> None:
            told.append({"event": event, **values})

        exception = warning

    monkeypatch.setattr(connection_module, "get_logger", lambda _: cast(Any, Log()))
    return told


async def test_requests_start_when_the_one_before_is_answered() -> None:
    served = Served()
    await served.send(OTHER, "a", "b")
    assert served.started == ["a"]
    await served.answer("a", b"A")
    assert served.started == ["a", "b"]
    await served.answer("b", [b"B", b"B"])
    assert served.transport.written == [b"A", b"BB"]
    assert served.budget.used_bytes == 0


async def test_produce_requests_overlap_and_are_answered_in_order() -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b", "c")
    assert served.started == ["a", "b", "c"]
    await served.answer("c", b"C")
    await served.answer("b", None)
    assert served.transport.written == []
    assert not any(times.left_at for times in served.times.values())
    await served.answer("a", b"A")
    assert served.transport.written == [b"A", b"C"]
    assert all(times.left_at for times in served.times.values())


async def test_produce_does_not_overlap_with_others() -> None:
    served = Served()
    await served.send(OTHER, "a")
    await served.send(PRODUCE, "p", "q")
    await served.send(OTHER, "z")
    assert served.started == ["a"]
    await served.answer("a", b"A")
    assert served.started == ["a", "p", "q"]
    await served.answer("q", b"Q")
    assert "z" not in served.started
    await served.answer("p", b"P")
    assert served.started == ["a", "p", "q", "z"]


async def test_reading_pauses_over_the_connections_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.CONNECTION_IN_FLIGHT_BYTES_MAX", 150)
    served = Served()
    await served.send(OTHER, "a", size=100)
    assert not served.transport.paused
    await served.send(OTHER, "b", size=100)
    assert served.transport.paused
    await served.answer("a", b"A")
    assert not served.transport.paused


async def test_reading_pauses_over_the_gateways_bytes_but_never_for_an_idle_connection() -> None:
    served = Served(budget_bytes=50)
    served.budget.take(60)
    await served.send(OTHER, "a")
    assert served.transport.paused
    await served.answer("a", b"A")
    assert not served.transport.paused
    await served.send(OTHER, "b")
    assert served.transport.paused
    served.budget.give_back(60)
    assert not served.transport.paused


async def test_reading_pauses_over_the_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.CONNECTION_IN_FLIGHT_REQUESTS_MAX", 2)
    served = Served()
    await served.send(OTHER, "a", "b", "c")
    assert served.transport.paused
    await served.answer("a", b"A")
    assert not served.transport.paused


async def test_answers_wait_while_the_socket_takes_nothing() -> None:
    served = Served()
    await served.send(OTHER, "a", "b")
    served.connection.pause_writing()
    await served.answer("a", b"A")
    assert (served.transport.written, served.started) == ([], ["a"])
    served.connection.resume_writing()
    await served.settle()
    assert (served.transport.written, served.started) == ([b"A"], ["a", "b"])


@pytest.mark.parametrize("error", [MalformedRequest("bad bytes"), CloseConnection("not served")])
async def test_request_that_cannot_be_answered_closes_with_one_line(
    error: Exception, warnings: list[dict[str, Any]]
) -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b")
    await served.answer("a", error)
    assert (served.transport.closed, served.cancelled) == (True, ["b"])
    assert [line["reason"] for line in warnings] == [str(error)]
    await served.send(OTHER, "late")
    assert "late" not in served.started


async def test_a_request_that_fails_in_an_unknown_way_closes_with_one_line(
    warnings: list[dict[str, Any]],
) -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b")
    await served.answer("a", KeyError("nobody thought of it"))
    assert (served.transport.closed, served.cancelled) == (True, ["b"])
    assert [line["reason"] for line in warnings] == ["KeyError: 'nobody thought of it'"]


async def test_a_request_that_is_cancelled_from_inside_closes_with_one_line(
    warnings: list[dict[str, Any]],
) -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b")
    served._waiting["a"].cancel()
    await served.settle()
    assert (served.transport.closed, served.cancelled) == (True, ["a", "b"])
    assert [line["reason"] for line in warnings] == ["a request was cancelled"]


async def test_bad_length_closes_with_one_line(warnings: list[dict[str, Any]]) -> None:
    served = Served()
    served.connection.data_received(b"\xff\xff\xff\xff")
    served.connection.data_received(b"GET / HTTP/1.1")
    assert served.transport.closed
    assert len(warnings) == 1


async def test_lost_connection_cancels_what_runs_and_gives_back_its_bytes() -> None:
    served = Served()
    await served.send(OTHER, "a", "b")
    served.connection.connection_lost(None)
    await served.settle()
    assert served.cancelled == ["a"]
    assert served.budget.used_bytes == 0
    assert served.lost == [served.connection]


async def test_pauses_of_reading_and_writing_are_counted() -> None:
    served = Served(budget_bytes=100)
    reading, writing = served.pauses.reading[Reason.GATEWAY_BYTES], served.pauses.writing
    await served.send(PRODUCE, "a", "b", size=80)
    assert served.transport.paused
    assert (reading.pauses, reading.running) == (1, 1)
    await served.answer("a", b"A")
    assert (reading.pauses, reading.running) == (1, 0)
    served.connection.pause_writing()
    assert (writing.pauses, writing.running) == (1, 1)
    await served.send(PRODUCE, "c", size=80)
    unread = served.pauses.reading[Reason.ANSWERS_UNREAD]
    assert (reading.pauses, unread.pauses, unread.running) == (1, 1, 1)
    served.connection.connection_lost(None)
    assert (reading.running, unread.running, writing.running) == (0, 0, 0)


async def test_answers_are_measured_when_they_leave() -> None:
    served = Served()
    await served.send(OTHER, "a")
    found = {sample.name: sample.value for family in served.pauses.collect() for sample in family.samples}
    assert found["barnabas_gateway_unanswered_request_bytes"] == 3
    assert found["barnabas_gateway_paused_connections"] == 0
    await served.answer("a", b"A")
    found = {sample.name: sample.value for family in served.pauses.collect() for sample in family.samples}
    assert found["barnabas_gateway_unanswered_request_bytes"] == 0


async def test_a_frame_that_has_not_come_whole_counts_for_the_gateway() -> None:
    served = Served()
    frame = struct.pack(">ih", 1_000, OTHER) + bytes(998)
    served.connection.data_received(frame[:600])
    assert served.budget.used_bytes == 600
    served.connection.data_received(frame[600:] + frame[:10])
    await served.settle()
    assert served.budget.used_bytes == 1_000 + 10
    await served.answer("\0" * 998, b"A")
    assert served.budget.used_bytes == 10
    served.connection.connection_lost(None)
    assert served.budget.used_bytes == 0


async def test_a_connection_that_writes_to_a_full_node_is_not_read_until_its_requests_are_answered() -> None:
    served = Served()
    await served.send(PRODUCE, "a")
    served.client.held.count += 1
    await served.send(PRODUCE, "b")
    assert (served.started, served.transport.paused) == (["a"], True)
    served.client.held.count -= 1
    await served.answer("a", b"A")
    assert (served.started, served.transport.paused) == (["a", "b"], False)


async def test_a_connection_whose_records_nobody_took_sends_one_request_at_a_time() -> None:
    served = Served()
    served.client.held.refusals = 1
    await served.send(PRODUCE, "a", "b")
    assert (served.started, served.transport.paused) == (["a"], True)
    await served.answer("a", b"A")
    assert (served.started, served.transport.paused) == (["a", "b"], True)
    await served.answer("b", b"B")
    assert not served.transport.paused
    served.client.held.refusals = 0
    await served.send(PRODUCE, "c", "d")
    assert (served.started[2:], served.transport.paused) == (["c", "d"], False)


class Full(FakeTransport):
    """A client that takes nothing: its socket is full with whatever is written."""

    connection: Connection

    def write(self, data: Any) -> None:
        super().write(data)
        self.unsent_bytes += len(data)
        self.connection.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def take_all(self) -> None:
        self.unsent_bytes = 0
        self.connection.resume_writing()


def deaf() -> tuple[Served, Full]:
    served, transport = Served(), Full()
    transport.connection = served.connection
    served.transport = served.connection._transport = transport
    return served, transport


async def test_an_answer_that_is_not_taken_counts_until_it_is_and_nothing_more_is_read() -> None:
    served, transport = deaf()
    await served.send(OTHER, "a", size=10)
    await served.answer("a", [b"A" * 70, b"A" * 30])
    assert (served.budget.used_bytes, served.unread.used_bytes) == (100, 100)
    assert (transport.paused, served.connection.is_idle) == (True, True), "the gateway waits for its client"
    assert served.pauses.reading[Reason.ANSWERS_UNREAD].running == 1
    transport.unsent_bytes = 1
    assert served.unread.used_bytes == 100, "it is in memory whole until its last byte has left"
    transport.take_all()
    assert (served.budget.used_bytes, served.unread.used_bytes, transport.paused) == (0, 0, False)


async def test_an_answer_on_the_spot_that_is_not_taken_counts_as_well() -> None:
    served, transport = deaf()
    served.connection._answers_at_once = {b"\0\3": lambda frame, *_: [b"A" * 50]}
    await served.send(OTHER, "a", "b")
    assert (len(transport.written), transport.paused, served.unread.used_bytes) == (1, True, 50)
    assert served.started == []
    served.connection.connection_lost(None)
    assert (served.budget.used_bytes, served.unread.used_bytes) == (0, 0)


async def test_an_answer_that_waits_for_those_before_it_counts() -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b", size=10)
    await served.answer("b", b"B" * 100)
    assert served.budget.used_bytes == 12 + 12 + 100
    await served.answer("a", b"A")
    assert served.budget.used_bytes == 0
    await served.send(PRODUCE, "c", "d")
    await served.answer("d", b"D" * 100)
    served.connection.connection_lost(None)
    assert served.budget.used_bytes == 0


async def test_who_does_not_read_while_others_wait_is_closed_at_once(warnings: list[dict[str, Any]]) -> None:
    served, transport = deaf()
    await served.send(OTHER, "a", size=10)
    await served.answer("a", b"A" * 100)
    served.connection.close()
    served.connection.give_up_unread()
    assert (transport.closed, transport.aborted) == (True, True), (
        "what it waits for as it closes is not waited for"
    )
    served.connection.connection_lost(None)
    assert (served.budget.used_bytes, served.unread.used_bytes) == (0, 0)


class Waits:
    """A fetch that waits without a task."""

    def __init__(self) -> None:
        self.times: RequestTimes | None = None
        self.on_answer: Any = None
        self.is_stopped = False

    def start(self, times: RequestTimes, on_answer: Any) -> None:
        self.times, self.on_answer = times, on_answer

    def stop(self) -> None:
        self.is_stopped = True


def waiting() -> tuple[Served, Waits]:
    """A connection whose requests that begin with 3 wait, all on one."""
    served, waits = Served(), Waits()
    served.connection._answers_at_once = {b"\0\3": lambda frame, *_: waits}
    return served, waits


async def test_an_answer_that_comes_later_keeps_its_place_and_counts() -> None:
    served, waits = waiting()
    await served.send(OTHER, "a", "b", size=8)
    assert (served.started, served.budget.used_bytes, served.connection.is_idle) == ([], 20, False)
    waits.on_answer([b"A", b"A"])
    await served.settle()
    assert (served.transport.written, served.started) == ([b"AA"], ["b"])
    await served.answer("b", b"B")
    assert (served.transport.written, served.budget.used_bytes) == ([b"AA", b"B"], 0)
    await served.send(OTHER, "c")
    waits.on_answer(b"C")
    assert served.transport.written[-1] == b"C"


async def test_what_waited_may_take_the_general_way_after_all() -> None:
    served, waits = waiting()
    await served.send(OTHER, "a")
    waits.on_answer(None)
    await served.settle()
    assert served.started == ["a"]
    await served.answer("a", b"A")
    assert (served.transport.written, served.budget.used_bytes) == ([b"A"], 0)


@pytest.mark.parametrize("ends", ["close", "lost"])
async def test_a_connection_that_ends_waits_no_longer(ends: str) -> None:
    served, waits = waiting()
    await served.send(OTHER, "a", "b")
    if ends == "close":
        served.connection.close()
        assert waits.is_stopped
    served.connection.connection_lost(None)
    assert (waits.is_stopped, served.budget.used_bytes) == (True, 0)
