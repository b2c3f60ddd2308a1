"""When a log directory whose disk refuses is given up, and when it is taken back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.storage import limits
from barnabas.storage.directories.disk_refusals import DiskRefusals

QUIET = limits.QUIET_SECONDS_MIN


def refused(*times: float) -> DiskRefusals:
    refusals = DiskRefusals()
    for now in times:
        refusals.on_refusal(now)
    return refusals


@pytest.mark.parametrize(
    ("times", "is_given_up"),
    [
        ((), False),
        ((0.0, 1.0), False),
        ((0.0, 1.0, 2.0), True),
        ((0.0, 0.01, 0.02, 0.05, 0.09), False),
        ((0.0, 0.01, 0.15, 0.16, 0.3), True),
        ((0.0, 5.0, 10.1), False),
        ((0.0, 5.0, 10.1, 14.9), True),
    ],
    ids=["none", "a hitch", "again and again", "many at once", "apart", "seldom", "the last three"],
)
def test_so_many_refusals_in_such_a_time_are_enough(times: Sequence[float], is_given_up: bool) -> None:
    assert refused(*times).is_given_up == is_given_up


def test_it_is_said_once_that_it_is_given_up() -> None:
    refusals = DiskRefusals()
    assert [refusals.on_refusal(float(now)) for now in range(6)] == [False, False, True, False, False, False]


def test_others_are_about_to_lead_for_a_moment() -> None:
    refusals = refused(0.0, 1.0, 2.0)
    assert refusals.hands_over(2.0)
    assert not refusals.hands_over(2.0 + limits.HAND_OVER_REFUSAL_SECONDS_MAX)
    assert not DiskRefusals().hands_over(2.0)


def test_it_is_taken_back_by_a_probe_when_nothing_was_refused_for_a_while() -> None:
    refusals = refused(0.0, 1.0, 2.0, 7.0)
    assert not refusals.on_probe(7.0 + QUIET - 0.1)
    assert refusals.is_given_up
    assert refusals.on_probe(7.0 + QUIET)
    assert not refusals.is_given_up
    assert not refusals.on_probe(20.0), "it is not given up"
    assert not refusals.on_refusal(21.0), "it is counted anew"
    assert not refusals.on_refusal(22.0)


def test_where_it_is_soon_given_up_again_it_is_looked_at_longer_each_time() -> None:
    refusals, now = DiskRefusals(), 0.0
    waited = []
    for _ in range(8):
        while not refusals.on_refusal(now):
            now += 0.2
        last = now
        while not refusals.on_probe(now):
            now += 0.5
        waited.append(now - last)
    assert waited == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    now += limits.QUIET_SECONDS_MAX
    for each in (now, now + 1.0, now + 2.0):
        refusals.on_refusal(each)
    assert refusals.on_probe(now + 2.0 + QUIET), "its past is forgotten once it was well for long"
