"""Clocks: the one that tests move by hand, and the one of a cluster under test, which jumps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.config import setting
from barnabas.kernel.movable_clock import (
    ADVANCED_MS_MAX,
    ClockRefused,
    MovableClock,
    advanced_document,
    load_clock,
)
from barnabas.kernel.service import StartError, system_clock

HOUR_MS = 3_600_000


class Config:
    http_address, log_level, log_format = "", "INFO", "text"

    def __init__(self, movable_clock_file: str = setting("", "")) -> None:
        self.movable_clock_file = movable_clock_file


async def test_both_times_jump_and_never_go_back() -> None:
    clock = MovableClock()
    now_ms, monotonic = clock.now_ms(), clock.monotonic()
    await clock.advance_to(HOUR_MS)
    assert clock.now_ms() - now_ms >= HOUR_MS
    assert clock.monotonic() - monotonic >= 3600
    for wrong in (HOUR_MS - 1, ADVANCED_MS_MAX + 1):
        with pytest.raises(ClockRefused):
            await clock.advance_to(wrong)
    assert clock.advanced_ms == HOUR_MS


async def test_listeners_hear_of_a_jump_before_sleepers_wake() -> None:
    clock, events = MovableClock(), list[object]()

    async def sleep() -> None:
        await clock.sleep(100_000)
        events.append("awake")

    sleeping = asyncio.create_task(sleep())
    clock.on_jump(events.append)
    await asyncio.sleep(0)
    await clock.advance_to(HOUR_MS)
    await sleeping
    assert events == [3600.0, "awake"]


async def test_a_sleep_ends_by_itself_too() -> None:
    async with asyncio.timeout(20):
        await MovableClock(HOUR_MS).sleep(0)


async def test_a_jump_waits_for_the_work_that_it_sets_off() -> None:
    clock, rounds = MovableClock(), list[int]()

    async def look_now_and_then() -> None:
        while True:
            await clock.sleep(100_000)
            for _ in range(10):
                await asyncio.sleep(0)
            rounds.append(clock.advanced_ms)

    task = asyncio.create_task(look_now_and_then())
    await asyncio.sleep(0)
    for advanced_ms in (1, HOUR_MS, HOUR_MS):
        await clock.advance_to(advanced_ms)
        assert rounds[-1] == advanced_ms
    assert rounds == [1, HOUR_MS], "0 ms is no jump"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await clock.advance_to(2 * HOUR_MS)  # nobody left to wait for


async def test_one_who_ends_or_sleeps_no_more_is_not_waited_for() -> None:
    clock = MovableClock()

    async def once() -> None:
        await clock.sleep(100)
        await asyncio.sleep(0)

    task = asyncio.create_task(once())
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await clock.advance_to(1)
    assert task.done()


@pytest.mark.parametrize(
    "body", ["", "[]", *(f'{{"advanced_ms": {value}}}' for value in ("-1", "1.5", "true", '"1"'))]
)
async def test_what_is_no_time_is_refused(body: str) -> None:
    status, text = await MovableClock().answer_http("PUT", body.encode())
    assert (status, text.count(b"\n")) == (400, 1)


async def test_over_http() -> None:
    clock = MovableClock()
    assert (await clock.answer_http("GET", b""))[0] == 405
    assert await clock.answer_http("PUT", advanced_document(5)) == (200, b"ok\n")
    assert clock.advanced_ms == 5


def test_a_service_starts_as_far_ahead_as_the_file_says_and_only_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    assert load_clock(str(path)).advanced_ms == 0
    path.write_bytes(advanced_document(HOUR_MS))
    clock = system_clock(Config(str(path)))
    assert isinstance(clock, MovableClock)
    assert clock.advanced_ms == HOUR_MS
    assert not isinstance(system_clock(Config("")), MovableClock)
    path.write_text("tomorrow")
    with pytest.raises(StartError, match=r"movable.clock.file=.*cannot be used"):
        system_clock(Config(str(path)))


async def test_a_manual_clock_wakes_those_whose_time_has_come() -> None:
    clock, woken = ManualClock(1_000), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [
        asyncio.create_task(sleep(name, seconds)) for name, seconds in (("b", 0.5), ("a", 0.2), ("c", 0.9))
    ]
    gone = asyncio.create_task(sleep("gone", 0.3))
    await asyncio.sleep(0)
    gone.cancel()
    clock.advance(800)
    await asyncio.gather(*tasks[:2])
    assert (woken, clock.now_ms(), clock.monotonic()) == (["a", "b"], 1_800, 0.8)
    assert not tasks[2].done()
    clock.advance(100)
    await tasks[2]
