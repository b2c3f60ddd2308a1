"""Deadlines under one timer, on a clock that only moves when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.links import deadlines as deadlines_module
from barnabas.links.deadlines import TICK_SECONDS, Deadlines


class VirtualLoop:
    """An event loop's clock and timers."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[tuple[float, Callable[[], None], Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        handle = SimpleNamespace(is_cancelled=False)
        handle.cancel = lambda: setattr(handle, "is_cancelled", True)
        self.timers.append((self.now + seconds, callback, handle))
        return handle

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end and not timer[2].is_cancelled]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end

    @property
    def is_idle(self) -> bool:
        return all(handle.is_cancelled for _, _, handle in self.timers)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> VirtualLoop:
    virtual = VirtualLoop()
    monkeypatch.setattr(
        deadlines_module, "asyncio", SimpleNamespace(get_running_loop=lambda: virtual, TimerHandle=None)
    )
    return virtual


def test_keys_pass_in_the_order_of_their_time_and_never_early(loop: VirtualLoop) -> None:
    passed: list[int] = []
    deadlines = Deadlines(passed.extend)
    deadlines.add(1, 3.0)
    deadlines.add(2, 0.5)
    deadlines.add(3, 0.5)
    loop.advance(0.5 - TICK_SECONDS / 10)
    assert passed == []
    loop.advance(2 * TICK_SECONDS)
    assert passed == [2, 3]
    loop.advance(3.0)
    assert passed == [2, 3, 1]
    assert (len(deadlines), loop.is_idle) == (0, True)


def test_what_was_answered_does_not_pass_and_leaves_no_timer(loop: VirtualLoop) -> None:
    passed: list[int] = []
    deadlines = Deadlines(passed.extend)
    ticks = {key: deadlines.add(key, 1.0) for key in range(1_000)}
    for key, tick in ticks.items():
        if key != 7:
            deadlines.discard(key, tick)
    assert len(deadlines) == 1
    deadlines.discard(8, ticks[8])  # twice does no harm
    loop.advance(5.0)
    assert (passed, loop.is_idle) == ([7], True)


def test_a_key_may_be_added_while_others_pass(loop: VirtualLoop) -> None:
    passed: list[int] = []

    def on_passed(keys: Sequence[int]) -> None:
        passed.extend(keys)
        if keys == [1]:
            deadlines.add(2, 0.2)

    deadlines = Deadlines(on_passed)
    deadlines.add(1, 0.2)
    loop.advance(1.0)
    assert (passed, loop.is_idle) == ([1, 2], True)


def test_nothing_passes_after_clear(loop: VirtualLoop) -> None:
    passed: list[int] = []
    deadlines = Deadlines(passed.extend)
    deadlines.add(1, 0.2)
    deadlines.clear()
    loop.advance(1.0)
    assert (passed, loop.is_idle) == ([], True)
    deadlines.add(2, 0.2)
    loop.advance(1.0)
    assert passed == [2]
