"""Why a connection is not read, by name; and a client that is muted for a time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from test_connection import OTHER, PRODUCE, Served

from barnabas.gateway import limits
from barnabas.gateway.clients import connection as connection_module
from barnabas.gateway.clients import held as held_module
from barnabas.gateway.clients.held import Held, Reason
from barnabas.gateway.clients.reading_pause import peer_has_ended


class Timer:
    """What `call_at` gives."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Time:
    """A loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, callback))
        return self.timers[-1]

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        for timer in [each for each in self.timers if each.at <= self.now]:
            self.timers.remove(timer)
            if not timer.is_cancelled:
                timer.callback()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    loop = SimpleNamespace(get_running_loop=lambda: time, TimerHandle=None)
    monkeypatch.setattr(held_module, "asyncio", loop)
    return time


async def test_a_muted_client_is_answered_what_is_under_way_and_nothing_more(passing: Time) -> None:
    served = Served()
    await served.send(PRODUCE, "a", "b")
    await served.send(OTHER, "c")
    served.client.held.mute(2.0)
    assert served.transport.paused
    await served.answer("b", b"B")
    await served.answer("a", b"A")
    assert (served.transport.written, served.started) == ([b"A", b"B"], ["a", "b"])
    passing.go_on(1.9)
    await served.settle()
    assert (served.transport.paused, served.started) == (True, ["a", "b"])
    passing.go_on(0.2)
    await served.settle()
    assert (served.transport.paused, served.started) == (False, ["a", "b", "c"])


async def test_the_request_that_mutes_its_client_is_answered_first(passing: Time) -> None:
    """KIP-219: the answer tells the client for how long."""
    served = Served()
    await served.send(OTHER, "a")
    served.client.held.mute(1.0)
    await served.answer("a", b"throttled for 1000 ms")
    assert (served.transport.written, served.transport.paused) == ([b"throttled for 1000 ms"], True)
    assert not served.connection.is_idle, "it waits, and is not to be closed as one that says nothing"
    passing.go_on(1.0)
    assert (served.transport.paused, served.connection.is_idle) == (False, True)


async def test_a_client_that_waits_for_nothing_can_be_muted(passing: Time) -> None:
    served = Served()
    served.client.held.mute(1.0)
    assert served.transport.paused
    await served.send(OTHER, "was under way in the socket")
    assert served.started == []
    passing.go_on(1.0)
    await served.settle()
    assert (served.transport.paused, served.started) == (False, ["was under way in the socket"])


async def test_nothing_is_answered_at_once_while_muted(passing: Time) -> None:
    served = Served()
    served.connection._answers_at_once = {b"\0\0": lambda frame, *_: b"<" + frame[2:] + b">"}
    await served.send(PRODUCE, "a")
    assert served.transport.written == [b"<a>"]
    served.client.held.mute(1.0)
    await served.send(PRODUCE, "b")
    assert (served.transport.written, served.started) == ([b"<a>"], [])
    passing.go_on(1.0)
    await served.settle()
    assert served.started == ["b"]


async def test_who_ends_while_muted_is_not_heard_any_more(
    passing: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it sent then, it has sent again to somebody else, and the log may since have forgotten its sequences."""
    served, ended = Served(), False
    monkeypatch.setattr(connection_module, "peer_has_ended", lambda transport: ended)
    served.client.held.mute(1.0)
    await served.send(PRODUCE, "was under way in the socket")
    ended = True
    passing.go_on(1.0)
    await served.settle()
    assert (served.started, served.transport.closed, served.transport.paused) == ([], True, True)


def test_the_end_of_a_peer_is_seen_behind_what_it_sent() -> None:
    async def look() -> tuple[bool, int]:
        loop, accepted, read = asyncio.get_running_loop(), asyncio.Queue[asyncio.Transport](), list[bytes]()

        class Paused(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.put_nowait(cast(asyncio.Transport, transport))

            def data_received(self, data: bytes) -> None:
                read.append(data)

        async with await loop.create_server(Paused, "127.0.0.1", 0) as server:
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                transport = await accepted.get()
                while not read:
                    client.sendall(b"first")
                    await asyncio.sleep(0.001)
                transport.pause_reading()
                read.clear()
                client.sendall(b"second")
                before = peer_has_ended(transport)
            while not peer_has_ended(transport):
                await asyncio.sleep(0.001)
            heard = len(read)
            transport.abort()
            return before, heard

    assert asyncio.run(look()) == uvloop.run(look()) == (False, 0)


@pytest.mark.parametrize("times", [(3.0, 1.0), (1.0, 3.0), (3.0, 3.0)])
async def test_of_two_times_the_later_end_counts(times: tuple[float, float], passing: Time) -> None:
    held, told = Held(), list[bool]()
    held.on_mute = lambda: told.append(held.is_muted)
    for seconds in times:
        held.mute(seconds)
    passing.go_on(2.9)
    assert held.is_muted
    passing.go_on(0.1)
    assert (held.is_muted, told[-1], told.count(False)) == (False, False, 1)
    held.mute(1.0)
    assert held.is_muted, "it can be muted again"


def test_a_client_may_be_muted_again_within_no_time_at_all() -> None:
    """On the event loop that the services run on, whose handles for what is due at once know no time."""

    async def mute_twice() -> bool:
        held = Held()
        held.mute(0.0001)
        held.mute(0.0002)
        while held.is_muted:
            await asyncio.sleep(0.001)
        held.close()
        return True

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(mute_twice())


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_at_all_mutes_nobody(seconds: float, passing: Time) -> None:
    held = Held()
    held.mute(seconds)
    assert (held.is_muted, passing.timers) == (False, [])


async def test_nobody_is_muted_for_longer_than_the_limit(passing: Time) -> None:
    held = Held()
    held.mute(1e9)
    passing.go_on(limits.MUTED_SECONDS_MAX)
    assert not held.is_muted


async def test_a_muted_client_that_leaves_is_forgotten(passing: Time) -> None:
    served = Served()
    await served.send(OTHER, "a", "b")
    served.client.held.mute(1.0)
    served.connection.connection_lost(None)
    await served.settle()
    assert [timer.is_cancelled for timer in passing.timers] == [True]
    assert (served.pauses.reading[Reason.MUTED].running, served.budget.used_bytes) == (0, 0)


async def test_a_muted_client_whose_connection_the_gateway_ends_stays_ended(passing: Time) -> None:
    served = Served()
    await served.send(OTHER, "a", "b")
    served.client.held.mute(1.0)
    served.connection.close()
    passing.go_on(1.0)
    await served.settle()
    assert (served.started, served.transport.paused) == (["a"], True)


def node_full(served: Served) -> None:
    served.client.held.count = 1


def nobody_leads(served: Served) -> None:
    served.client.held.refusals = 1


def muted(served: Served) -> None:
    served.client.held.mute(1.0)


def unread(served: Served) -> None:
    served.connection.pause_writing()


def gateway_bytes(served: Served) -> None:
    served.budget.take(1000)


def nothing(_: Served) -> None: ...


@pytest.mark.parametrize(
    ("happens", "size", "reason"),
    [
        (nothing, 0, None),
        (muted, 0, Reason.MUTED),
        (unread, 0, Reason.ANSWERS_UNREAD),
        (node_full, 0, Reason.NODE_FULL),
        (nobody_leads, 0, Reason.NOBODY_LEADS),
        (gateway_bytes, 0, Reason.GATEWAY_BYTES),
        (nothing, 200, Reason.CONNECTION_BYTES),
        (nothing, -1, Reason.CONNECTION_REQUESTS),
    ],
)
async def test_each_reason_has_its_name(
    happens: Callable[[Served], None],
    size: int,
    reason: Reason | None,
    passing: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CONNECTION_IN_FLIGHT_BYTES_MAX", 150)
    monkeypatch.setattr(limits, "CONNECTION_IN_FLIGHT_REQUESTS_MAX", 2)
    served = Served(budget_bytes=999)
    happens(served)
    names = ("a", "b", "c") if size < 0 else ("a",)
    await served.send(OTHER, *names, size=max(size, 0))
    running = {each for each, pauses in served.pauses.reading.items() if pauses.running}
    assert running == ({reason} if reason else set())
    assert served.transport.paused == bool(reason)
    shown = {
        sample.labels["reason"]: sample.value
        for family in served.pauses.collect()
        for sample in family.samples
        if sample.name == "barnabas_gateway_paused_connections"
    }
    # Who does not read is in a pause of writing, and no producer that is held back.
    assert shown == {
        each.value: float(each is reason) for each in Reason if each is not Reason.ANSWERS_UNREAD
    }


async def test_one_reason_follows_another(passing: Time) -> None:
    served = Served(budget_bytes=100)
    await served.send(OTHER, "a", size=120)
    served.client.held.mute(1.0)
    reading = served.pauses.reading
    bytes_over, is_muted = reading[Reason.GATEWAY_BYTES], reading[Reason.MUTED]
    assert (bytes_over.running, is_muted.running, served.transport.paused) == (0, 1, True)
    passing.go_on(1.0)
    assert (bytes_over.running, is_muted.running, served.transport.paused) == (1, 0, True)
    await served.answer("a", b"A")
    assert (bytes_over.running, bytes_over.pauses, served.transport.paused) == (0, 2, False)


async def test_muting_goes_by_the_event_loop() -> None:
    """The same with a real timer."""
    held, over = Held(), asyncio.Event()
    held.mute(0.001)
    held.on_mute = over.set
    await over.wait()
    assert not held.is_muted


async def test_a_frame_cut_in_two_is_kept_while_muted(passing: Time) -> None:
    served = Served()
    frame: Any = struct.pack(">ih", 3, OTHER) + b"a"
    served.connection.data_received(frame[:5])
    served.client.held.mute(1.0)
    served.connection.data_received(frame[5:])
    passing.go_on(1.0)
    await served.settle()
    assert served.started == ["a"]
