"""A stop has one budget, whichever of a process's services spends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.service import STOP_MARGIN_SECONDS, STOP_SECONDS_MAX, ServiceContext

WHOLE = STOP_SECONDS_MAX - STOP_MARGIN_SECONDS


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The event loop's; to be moved by setting `now`."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: clock.now))
    return clock


def test_what_is_left_shrinks_with_time_to_nothing(time: SimpleNamespace) -> None:
    stopping = ServiceContext("service", seeded_environment(1)).stopping
    stopping.set()
    assert stopping.seconds_left() == WHOLE
    time.now += 10
    stopping.set()
    assert stopping.seconds_left() == WHOLE - 10, "asked to stop again, it began when it began"
    time.now += STOP_SECONDS_MAX
    assert stopping.seconds_left() == 0


def test_a_part_that_stops_later_has_what_is_left_of_the_whole(time: SimpleNamespace) -> None:
    whole = ServiceContext("broker", seeded_environment(1))
    part = whole.part()
    whole.stopping.set()
    assert not part.stopping.is_set()
    time.now += 9.5
    part.stopping.set()
    assert part.stopping.seconds_left() == WHOLE - 9.5


def test_a_part_that_gives_up_by_itself_has_all_of_it(time: SimpleNamespace) -> None:
    part = ServiceContext("broker", seeded_environment(1)).part()
    part.stopping.set()
    assert part.stopping.seconds_left() == WHOLE
