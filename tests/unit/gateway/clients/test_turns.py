"""Turns are passed on in the order in which they were taken, whatever becomes of those who took them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.gateway.clients.turns import ALONE, Turn, Turns


def test_a_turn_comes_when_those_before_it_were_passed_on() -> None:
    turns = Turns()
    first, second, third = Turn(turns), Turn(turns), Turn(turns)
    assert [each.has_come for each in (first, second, third)] == [True, False, False]
    second.pass_on()
    assert [first.has_come, third.has_come] == [True, False]
    first.pass_on()
    first.pass_on()
    assert third.has_come
    third.pass_on()
    assert Turn(turns).has_come


def test_who_overlaps_with_nobody_never_waits() -> None:
    ALONE.pass_on()
    assert ALONE.has_come


async def take(turn: Turn, name: int, taken: list[int]) -> None:
    try:
        await turn.wait()
        taken.append(name)
    finally:
        turn.pass_on()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_nobody_overtakes_and_nobody_is_stuck(order: list[int], cancelled: set[int]) -> None:
    """They come to wait in any order; some are cancelled while they do."""

    async def run() -> None:
        turns = Turns()
        first = Turn(turns)
        mine = [Turn(turns) for _ in range(5)]
        taken: list[int] = []
        tasks: dict[int, asyncio.Task[None]] = {}
        for name in order:
            tasks[name] = asyncio.create_task(take(mine[name], name, taken))
            await asyncio.sleep(0)
        for name in cancelled:
            tasks[name].cancel()
        await settle()
        assert taken == []
        first.pass_on()
        await settle()
        assert taken == sorted(set(range(5)) - cancelled)
        assert all(task.done() for task in tasks.values())

    asyncio.run(run())


async def test_who_is_cancelled_when_its_turn_has_just_come_leaves_it_to_the_next() -> None:
    turns, taken = Turns(), list[int]()
    first = Turn(turns)
    second = asyncio.create_task(take(Turn(turns), 2, taken))
    third = asyncio.create_task(take(Turn(turns), 3, taken))
    await settle()
    first.pass_on()
    second.cancel()
    await settle()
    assert (taken, third.done()) == ([3], True)


async def test_after_the_end_of_the_connection_no_turn_comes() -> None:
    turns, taken = Turns(), list[int]()
    first, second, late = Turn(turns), Turn(turns), Turn(turns)
    waiting = asyncio.create_task(take(second, 2, taken))
    await settle()
    turns.close()
    first.pass_on()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(asyncio.CancelledError):
        await take(late, 3, taken)  # it has come to wait only now
    assert (taken, late.has_come) == ([], True), "it was passed on"


async def test_a_turn_that_has_just_come_is_gone_with_the_connection() -> None:
    turns, taken = Turns(), list[int]()
    first = Turn(turns)
    waiting = asyncio.create_task(take(Turn(turns), 2, taken))
    await settle()
    first.pass_on()
    turns.close()
    await settle()
    assert (taken, waiting.cancelled()) == ([], True)
