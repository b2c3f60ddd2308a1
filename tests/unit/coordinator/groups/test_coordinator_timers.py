"""Deadlines as data, and the checks of the coordinator's settings."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core import timers as timers_module
from barnabas.coordinator.groups.core.timers import STALE_ENTRIES_MAX, Deadline, DeadlineKind, Timers
from barnabas.kernel.config import ConfigError

names = st.sampled_from("abc").map(lambda name: Deadline(DeadlineKind.SESSION, "g", name))


@given(
    st.lists(st.tuples(names, st.none() | st.integers(0, 50), st.integers(0, 10))), st.sampled_from([0, 100])
)
def test_timers_agree_with_a_plain_dictionary(
    steps: list[tuple[Deadline, int | None, int]], stale: int
) -> None:
    with patch.object(timers_module, "STALE_ENTRIES_MAX", stale):
        check_timers(steps)


def check_timers(steps: list[tuple[Deadline, int | None, int]]) -> None:
    timers, model, now = Timers(), dict[Deadline, int](), 0
    for deadline, at_ms, passing in steps:
        if at_ms is None:
            timers.cancel(deadline)
            model.pop(deadline, None)
        else:
            timers.schedule(deadline, at_ms)
            model[deadline] = at_ms
        now += passing
        due = {key for key, value in model.items() if value <= now}
        popped = set()
        while (key := timers.pop_due(now)) is not None:
            assert key not in popped
            popped.add(key)
            del model[key]
        assert popped == due
        next_ms = timers.next_ms()
        assert not model or (next_ms is not None and now < next_ms <= min(model.values()))


def test_what_is_cancelled_is_forgotten_long_before_its_time() -> None:
    timers = Timers()
    for number in range(1_000):
        deadline = Deadline(DeadlineKind.CONSUMER_SYNC, "g", str(number))
        timers.schedule(deadline, 1_000_000 + number)
        timers.cancel(deadline)
    oldest_ms = timers.next_ms()
    assert oldest_ms is not None
    assert oldest_ms > 1_000_900 - STALE_ENTRIES_MAX


SECOND = 1_000
SESSION = Deadline(DeadlineKind.SESSION, "g", "m")
EXPIRATION = Deadline(DeadlineKind.EXPIRATION)


@pytest.mark.parametrize(
    ("left_before", "jump", "left_after"),
    [
        (45, 46, 5),  # late by the jump alone: time for one more heartbeat
        (45, 43, 5),  # nearly so: a live member sends its next one in 3 s
        (45, 30, 15),
        (3, 86_400, 3),  # no more than it had
        (-1, 10, 0),  # it was late already
    ],
)
def test_a_jump_of_the_clock_leaves_members_the_time_to_show_that_they_live(
    left_before: int, jump: int, left_after: int
) -> None:
    timers, before, now = Timers(), 100 * SECOND, (100 + jump) * SECOND
    timers.schedule(SESSION, before + left_before * SECOND)
    timers.spare(now, jump * SECOND, 5 * SECOND)
    due = now + left_after * SECOND
    assert timers.time_of(SESSION) == due
    assert timers.pop_due(due - 1) is None
    assert timers.pop_due(due) == SESSION


def test_after_a_jump_expired_offsets_are_looked_for_at_once() -> None:
    timers = Timers()
    timers.schedule(EXPIRATION, 600 * SECOND)
    timers.spare(10 * SECOND, 1 * SECOND, 5 * SECOND)
    assert timers.next_ms() == 10 * SECOND
    assert timers.pop_due(10 * SECOND) == EXPIRATION


@pytest.mark.parametrize(
    "settings",
    [
        {"group_min_session_timeout_ms": 2_000_000},
        {"group_max_size": 0},
        {"group_initial_rebalance_delay_ms": -1},
        {"offsets_retention_minutes": 0},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        CoordinatorConfig(**settings)
