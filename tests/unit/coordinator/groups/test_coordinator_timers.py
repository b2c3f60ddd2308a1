"""Deadlines as data, and the checks of the coordinator's settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind, Timers
from barnabas.kernel.config import ConfigError

names = st.sampled_from("abc").map(lambda name: Deadline(DeadlineKind.SESSION, "g", name))


@given(st.lists(st.tuples(names, st.none() | st.integers(0, 50), st.integers(0, 10))))
def test_timers_agree_with_a_plain_dictionary(steps: list[tuple[Deadline, int | None, int]]) -> None:
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
