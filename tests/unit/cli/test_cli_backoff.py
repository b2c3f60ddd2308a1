from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.backoff import Backoff, BackoffLimits


def test_pauses_double_from_a_tenth_of_a_second_to_five() -> None:
    backoff = Backoff(BackoffLimits())
    assert [backoff.pause_after(0) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_long_run_starts_over() -> None:
    backoff = Backoff(BackoffLimits())
    for _ in range(5):
        backoff.pause_after(1)
    assert backoff.pause_after(10) == 0.1
    assert backoff.pause_after(1) == 0.2


def test_a_run_that_was_no_failure_starts_over() -> None:
    backoff = Backoff(BackoffLimits())
    for _ in range(5):
        backoff.pause_after(1)
    backoff.start_over()
    assert [backoff.pause_after(1) for _ in range(2)] == [0.1, 0.2]


@given(st.lists(st.floats(0, 20)))
def test_a_pause_is_always_within_its_limits(uptimes: list[float]) -> None:
    limits = BackoffLimits()
    backoff = Backoff(limits)
    for uptime in uptimes:
        assert limits.first <= backoff.pause_after(uptime) <= limits.longest
