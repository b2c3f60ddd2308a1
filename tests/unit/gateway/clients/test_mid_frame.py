"""Frames that have not come whole while the gateway holds too many bytes: who may bring the rest, and who waits."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest
from gateway_harness import LISTENER
from test_connection import OTHER, FakeTransport

from barnabas.gateway import limits
from barnabas.gateway.clients import mid_frame
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.connection import Connection
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Client

CHUNK: Final = 100_000
FRAME_CHUNKS: Final = 10
BUDGET: Final = 5 * CHUNK


class Gateway:
    """Connections with one budget; each request is answered as soon as it starts."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.transports: list[FakeTransport] = []
        self._to_send: list[bytes] = []
        self.budget = ByteBudget(BUDGET, self._resume_all)
        self.metrics = ConnectionMetrics(self.budget)

    def _resume_all(self) -> None:
        for connection in list(self.connections):
            connection.budget_has_room()

    async def _serve(self, frame: bytes, *_: Any) -> bytes:
        return frame[2:3]

    def connect(self, chunks: int = FRAME_CHUNKS) -> int:
        """A client that has a frame of so many chunks to send; returns its index."""
        transport, client = FakeTransport(), Client(1, "10.1.1.1", "127.0.0.1", LISTENER)
        connection = Connection(
            lambda _: client,
            self._serve,
            self.budget,
            lambda _: None,
            frame_bytes_max=100_000_000,
            requests=RequestMetrics(),
            pauses=self.metrics,
        )
        connection.connection_made(transport)
        self.connections.append(connection)
        self.transports.append(transport)
        self._to_send.append(
            struct.pack(">ih", chunks * CHUNK - 4, OTHER) + b"A".ljust(chunks * CHUNK - 6, b".")
        )
        return len(self.transports) - 1

    def bring(self, index: int, chunks: int = 1) -> None:
        """The next of the client's frame, as far as its socket is read."""
        for _ in range(chunks):
            if not self.transports[index].paused and self._to_send[index]:
                data, self._to_send[index] = self._to_send[index][:CHUNK], self._to_send[index][CHUNK:]
                self.connections[index].data_received(data)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def silence(self, seconds: float) -> None:
        """Nothing has come of any connection for so long."""
        for connection in self.connections:
            connection._last_bytes_at -= seconds

    def answered(self) -> list[int]:
        return [index for index, transport in enumerate(self.transports) if transport.written == [b"A"]]

    def read(self) -> list[int]:
        return [index for index, transport in enumerate(self.transports) if not transport.paused]


class Turns:
    """Turns in the line that end when a test says so."""

    def __init__(self) -> None:
        self.running: list[Callable[[], None]] = []

    def call_later(self, _: float, look: Callable[..., None], *args: Any) -> Any:
        turn = partial(look, *args)
        self.running.append(turn)
        return SimpleNamespace(cancel=lambda: self.running.remove(turn) if turn in self.running else None)

    def end(self) -> None:
        (turn,) = self.running
        self.running.clear()
        turn()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    turns = Turns()
    monkeypatch.setattr(limits, "MID_FRAME_TURN_BYTES_MIN", CHUNK)
    monkeypatch.setattr(mid_frame, "asyncio", SimpleNamespace(get_running_loop=lambda: turns))
    return turns


async def test_over_the_budget_one_connection_alone_brings_the_rest_and_all_get_through() -> None:
    gateway = Gateway()
    clients = [gateway.connect() for _ in range(12)]
    most, rounds = 0, 0
    while len(gateway.answered()) < len(clients):
        for index in clients:
            gateway.bring(index)
            most = max(most, gateway.budget.used_bytes)
        await gateway.settle()
        rounds += 1
        assert rounds < 200, f"stuck: read {gateway.read()}, answered {gateway.answered()}"
    assert gateway.budget.used_bytes == 0
    # Beyond the budget: the frame of one, and what each of the others brought before it was stopped.
    assert most <= BUDGET + FRAME_CHUNKS * CHUNK + len(clients) * CHUNK
    assert gateway.read() == clients


async def test_small_requests_come_at_any_time() -> None:
    gateway = Gateway()
    clients = [gateway.connect() for _ in range(3)]
    for index in clients:
        gateway.bring(index, 3)
    assert (gateway.budget.is_exhausted, gateway.read()) == (True, [0])
    small = gateway.connect()
    frame = struct.pack(">ih", 1_000, OTHER) + b"A" * 998
    for part in (frame[:600], frame[600:]):
        gateway.connections[small].data_received(part)
        await gateway.settle()
    assert gateway.transports[small].written == [b"A"]
    assert gateway.budget.is_exhausted


async def test_who_is_stopped_goes_on_when_the_first_is_lost() -> None:
    gateway = Gateway()
    first, second = gateway.connect(), gateway.connect()
    gateway.bring(first, 7)
    gateway.bring(second, 7)
    assert gateway.read() == [first]
    gateway.connections[first].connection_lost(None)
    assert second in gateway.read()


async def test_a_connection_that_is_being_closed_leaves_its_turn_to_the_next() -> None:
    gateway = Gateway()
    first, second = gateway.connect(), gateway.connect()
    gateway.bring(first, 7)
    gateway.bring(second, 7)
    gateway.connections[first].close()
    assert (second in gateway.read(), gateway.budget.is_exhausted) == (True, True)
    gateway.connections[0].connection_lost(None)
    gateway.bring(second, 9)
    await gateway.settle()
    assert gateway.answered() == [second]


async def test_who_stops_in_the_middle_of_a_frame_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MID_FRAME_TURN_SECONDS", 0.001)
    monkeypatch.setattr(limits, "MID_FRAME_BUDGETS_MAX", 100)
    gateway = Gateway()
    silent = [gateway.connect() for _ in range(3)]
    for index in silent:
        gateway.bring(index, 9)
    assert gateway.read() == [silent[0]]
    clients = [gateway.connect() for _ in range(3)]
    async with asyncio.timeout(10):
        while gateway.answered() != clients:
            for index in clients:
                gateway.bring(index, 20)
            await asyncio.sleep(0.001)
    assert gateway.budget.is_exhausted
    assert not any(transport.closed for transport in gateway.transports)


async def test_who_brings_much_keeps_its_turn(turns: Turns) -> None:
    gateway = Gateway()
    first, second = gateway.connect(100), gateway.connect()
    gateway.bring(first, 6)
    gateway.bring(second, 1)
    for _ in range(3):
        gateway.bring(first)
        turns.end()
        assert gateway.read() == [first]
    turns.end()
    assert gateway.read() == [second]


async def test_a_connection_that_is_not_read_does_not_count_as_idle() -> None:
    gateway = Gateway()
    first, second = gateway.connect(), gateway.connect()
    gateway.bring(first, 7)
    gateway.bring(second, 1)
    stopped = gateway.connections[second]
    assert (gateway.connections[first].is_idle, stopped.is_idle) == (True, False)
    before = stopped.last_activity
    stopped._reading._since -= 900.0
    gateway.connections[first].connection_lost(None)
    assert (stopped.is_idle, stopped.last_activity - before) == (True, pytest.approx(900.0, abs=5))


async def test_clients_that_stop_one_after_the_other_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MID_FRAME_TURN_SECONDS", 0.001)
    gateway = Gateway()
    silent = [gateway.connect() for _ in range(12)]
    lost: set[int] = set()
    most = 0
    async with asyncio.timeout(10):
        while not lost:
            for index in silent:
                if gateway.transports[index].closed:
                    gateway.connections[index].connection_lost(None)
                    lost.add(index)
                elif len(gateway._to_send[index]) > CHUNK:  # all but the last
                    gateway.bring(index)
                most = max(most, gateway.budget.used_bytes)
            await asyncio.sleep(0.0001)
    one_frame, one_chunk_each = FRAME_CHUNKS * CHUNK, len(silent) * CHUNK
    assert most <= limits.MID_FRAME_BUDGETS_MAX * BUDGET + one_frame + one_chunk_each
    assert len(lost) < len(silent)


async def test_who_says_nothing_in_its_turn_is_closed_and_who_is_slow_is_not(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MID_FRAME_BUDGETS_MAX", 100)
    gateway = Gateway()
    first, second, slow, client = (gateway.connect() for _ in range(4))
    gateway.bring(first, 9)
    for index in (second, slow, client):
        gateway.bring(index)
    assert gateway.read() == [first]
    turns.end()
    gateway.bring(second, 8)
    turns.end()
    assert gateway.read() == [second], "it has brought much"
    turns.end()
    gateway.connections[slow].data_received(b".")
    gateway.silence(60.0)
    gateway.connections[slow].data_received(b".")
    turns.end()
    assert gateway.read() == [client], "the slow one has lost its turn, and nothing else"
    gateway.bring(client, 20)
    await gateway.settle()
    assert (gateway.answered(), gateway.budget.is_exhausted) == ([client], True)
    for index in (first, second):
        assert index in gateway.read()
        turns.end()
        assert not gateway.transports[index].closed, "the event loop may have had no time to read it"
        turns.end()
        assert gateway.transports[index].closed
        gateway.connections[index].connection_lost(None)
    assert not gateway.budget.is_exhausted
    assert not gateway.transports[slow].closed


async def test_who_waits_in_line_for_long_has_not_gone_silent(turns: Turns) -> None:
    gateway = Gateway()
    first, second = gateway.connect(), gateway.connect()
    gateway.bring(first, 6)
    gateway.bring(second)
    gateway.silence(60.0)
    gateway.bring(first)
    turns.end()
    turns.end()
    assert gateway.read() == [second]
    turns.end()
    gateway.connections[second].data_received(b".")
    turns.end()
    assert (gateway.read(), gateway.transports[second].closed) == ([first], False)


async def test_who_stopped_before_too_many_bytes_waited_is_closed_as_well(turns: Turns) -> None:
    gateway = Gateway()
    silent, client = gateway.connect(), gateway.connect()
    gateway.bring(silent, 5)
    assert not gateway.budget.is_exhausted
    gateway.silence(60.0)
    gateway.bring(client)
    assert gateway.transports[client].paused
    turns.end()
    turns.end()
    assert gateway.transports[silent].closed
    gateway.bring(client, 20)
    await gateway.settle()
    assert gateway.answered() == [client]


async def test_with_room_for_all_nobody_loses_anything(turns: Turns) -> None:
    gateway = Gateway()
    elsewhere = 4 * CHUNK
    gateway.budget.take(elsewhere)
    first, second = gateway.connect(), gateway.connect()
    gateway.bring(first)
    gateway.bring(second)
    gateway.silence(60.0)
    assert gateway.read() == [first]
    turns.end()
    gateway.budget.give_back(elsewhere)
    assert gateway.read() == [first, second]
    turns.end()
    assert not turns.running
    assert not any(transport.closed for transport in gateway.transports)


async def test_the_last_in_line_keeps_nobody_waiting(turns: Turns) -> None:
    gateway = Gateway()
    silent, lost = gateway.connect(), gateway.connect()
    gateway.bring(silent, 6)
    gateway.bring(lost)
    gateway.silence(60.0)
    turns.end()
    gateway.connections[lost].connection_lost(None)
    assert gateway.budget.is_exhausted
    turns.end()
    assert not turns.running
    assert not gateway.transports[silent].closed
