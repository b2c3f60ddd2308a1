"""Histograms and pauses as plain numbers, and what Prometheus sees of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram, histogram_family
from barnabas.kernel.pauses import PauseTimes


@given(st.lists(st.floats(0, 100), max_size=50))
def test_buckets_are_cumulative_and_nothing_is_lost(values: list[float]) -> None:
    bounds = (1.0, 5.0, 50.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    family = histogram_family("waits", "What was waited", [(["a"], histogram)], labels=["who"])
    found = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    for bound in bounds:
        assert found[str(bound)] == sum(value <= bound for value in values)
    assert found["+Inf"] == found["waits_count"] == len(values)
    assert abs(found["waits_sum"] - sum(values)) < 1e-6
    assert {sample.labels["who"] for sample in family.samples} == {"a"}


def test_running_pauses_are_counted_up_to_now() -> None:
    pauses = PauseTimes()
    assert pauses.seconds(100.0) == 0
    first = pauses.start(10.0)
    second = pauses.start(12.0)
    assert (pauses.pauses, pauses.running, pauses.seconds(13.0)) == (2, 2, 4.0)
    pauses.end(first, 14.0)
    assert (pauses.pauses, pauses.running, pauses.seconds(15.0)) == (2, 1, 7.0)
    pauses.end(second, 16.0)
    assert pauses.seconds(1000.0) == 8.0


@given(st.lists(st.floats(0, 1e5)), st.lists(st.sampled_from(MILLISECONDS_BUCKETS)))
def test_many_values_at_once_count_as_one_by_one(values: list[float], bounds: list[float]) -> None:
    together, single = Histogram(MILLISECONDS_BUCKETS), Histogram(MILLISECONDS_BUCKETS)
    together.observe_all([*values, *bounds])
    for value in (*values, *bounds):
        single.observe(value)
    assert together.counts == single.counts
    assert together.sum == pytest.approx(single.sum)
