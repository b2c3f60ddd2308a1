"""Bytes of answers that clients do not take: how much is read for others, who waits, and who is closed for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_held import Timer

from barnabas.gateway import limits
from barnabas.gateway.clients import unread_answers as module
from barnabas.gateway.clients.unread_answers import UnreadAnswers, answer_share_bytes

MIB = 1 << 20


class Client:
    """A client that takes of its answer what the test says."""

    def __init__(self, unread: UnreadAnswers, size_bytes: int) -> None:
        self._unread = unread
        self.held_bytes = self.unsent_bytes = size_bytes
        self.is_closed = False
        unread.take(size_bytes, self)

    def give_up_unread(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    def lose(self) -> None:
        """What follows from a connection that is closed, a moment later."""
        self._unread.give_back(self.held_bytes, self)


class Time:
    """A loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, callback))
        return self.timers[-1]

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self.timers if each.at <= end and not each.is_cancelled]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.callback()
        self.now = end


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    fake: Any = SimpleNamespace(get_running_loop=lambda: time, Event=asyncio.Event, TimerHandle=Timer)
    monkeypatch.setattr(module, "asyncio", fake)
    return time


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_fetch_is_answered_with_less_the_more_is_held(passing: Time) -> None:
    unread = UnreadAnswers(32 * MIB)
    assert unread.fetch_bytes_max() == 8 * MIB
    Client(unread, 16 * MIB)
    assert unread.fetch_bytes_max() == 4 * MIB
    Client(unread, 16 * MIB - 1)
    assert (unread.fetch_bytes_max(), unread.is_full) == (limits.FETCH_BYTES_MIN, False)
    Client(unread, 1)
    assert (unread.fetch_bytes_max(), unread.is_full) == (0, True)


async def test_no_limit_is_none() -> None:
    unread = UnreadAnswers(answer_share_bytes(0))
    unread.take(1 << 50)
    unread.on_read(1 << 50)
    await unread.wait_for_room()
    assert unread.fetch_bytes_max() > 1 << 60


async def test_who_waits_goes_on_when_an_answer_is_taken(passing: Time) -> None:
    unread = UnreadAnswers(MIB)
    clients = [Client(unread, MIB // 2) for _ in range(2)]
    waiting = [asyncio.create_task(unread.wait_for_room()) for _ in range(2)]
    await settle()
    assert not any(task.done() for task in waiting)
    clients[1].lose()
    await settle()
    assert all(task.done() for task in waiting)
    passing.go_on(60)
    assert not clients[0].is_closed, "nobody waits any more"


async def test_of_those_who_take_nothing_as_many_are_closed_as_have_to_the_longest_silent_first(
    passing: Time,
) -> None:
    unread = UnreadAnswers(MIB)
    first = Client(unread, MIB // 2)
    passing.go_on(60)
    second = Client(unread, MIB // 2)
    third = Client(unread, MIB // 4)
    waiting = asyncio.create_task(unread.wait_for_room())
    await settle()
    assert (first.is_closed, second.is_closed, third.is_closed) == (True, False, False)
    first.lose()
    await settle()
    assert waiting.done()


async def test_who_waits_for_those_who_have_just_begun_to_be_silent_waits_no_longer_than_the_limit(
    passing: Time,
) -> None:
    unread = UnreadAnswers(MIB)
    client = Client(unread, MIB)
    passing.go_on(limits.UNREAD_SECONDS_MAX / 2)
    waiting = asyncio.create_task(unread.wait_for_room())
    await settle()
    passing.go_on(limits.UNREAD_SECONDS_MAX / 4)
    assert not client.is_closed
    passing.go_on(limits.UNREAD_SECONDS_MAX / 2)
    assert client.is_closed
    client.lose()
    await settle()
    assert waiting.done()
    assert not [timer for timer in passing.timers if not timer.is_cancelled and timer.callback()]


async def test_who_asks_for_something_else_than_records_makes_room_as_well(passing: Time) -> None:
    """Nobody waits before he is answered with metadata, say."""
    unread = UnreadAnswers(MIB)
    clients = [Client(unread, MIB // 2) for _ in range(2)]
    passing.go_on(60)
    assert not any(client.is_closed for client in clients)
    clients.append(Client(unread, MIB))
    assert [client.is_closed for client in clients] == [True, True, False]
    for client in clients[:2]:
        client.lose()
    passing.go_on(limits.UNREAD_SECONDS_MAX * 0.8)
    clients.append(Client(unread, 1))
    assert not clients[2].is_closed
    passing.go_on(limits.UNREAD_SECONDS_MAX * 0.3)
    assert [client.is_closed for client in clients] == [True, True, True, False]
    clients[2].lose()
    passing.go_on(60)
    assert not clients[3].is_closed
    assert not [timer for timer in passing.timers if not timer.is_cancelled]


async def test_who_takes_something_is_not_closed(passing: Time) -> None:
    unread = UnreadAnswers(MIB)
    slow, slower = Client(unread, MIB), Client(unread, MIB)
    waiting = asyncio.create_task(unread.wait_for_room())
    await settle()
    for _ in range(12):
        slow.unsent_bytes -= limits.READ_BYTES_PER_SECOND_MIN // 3
        slower.unsent_bytes -= limits.READ_BYTES_PER_SECOND_MIN // 20
        passing.go_on(limits.UNREAD_SECONDS_MAX / 2)
    assert (slow.is_closed, slower.is_closed) == (False, True)
    waiting.cancel()


async def test_who_waits_and_goes_closes_nobody(passing: Time) -> None:
    unread = UnreadAnswers(MIB)
    client = Client(unread, MIB)
    waiting = asyncio.create_task(unread.wait_for_room())
    await settle()
    waiting.cancel()
    await settle()
    passing.go_on(60)
    assert not client.is_closed


async def test_what_was_read_counts_until_its_connection_has_counted_it() -> None:
    unread = UnreadAnswers(MIB)
    seen = []

    async def write() -> None:
        seen.append(unread.used_bytes + unread._coming_bytes + unread._came_bytes)

    unread.on_read(MIB // 2)
    first = asyncio.create_task(write())
    await asyncio.sleep(0)
    unread.on_read(MIB // 2)
    second = asyncio.create_task(write())
    assert unread.is_full
    async with asyncio.timeout(5):
        await unread.wait_for_room()
    await asyncio.gather(first, second)
    assert (seen, unread.fetch_bytes_max()) == ([MIB // 2] * 2, MIB // limits.FETCH_ONE_PART_IN)


@given(st.lists(st.integers(1, 100), max_size=30), st.randoms())
def test_whatever_is_taken_is_given_back(sizes: list[int], chance: Any) -> None:
    async def run() -> None:
        unread = UnreadAnswers(200)
        clients = [Client(unread, size) for size in sizes]
        assert unread.is_full == (sum(sizes) >= 200)
        chance.shuffle(clients)
        for client in clients:
            client.lose()
        assert (unread.used_bytes, unread.is_full, unread._readers) == (0, False, {})

    asyncio.run(run())
