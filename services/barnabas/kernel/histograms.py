"""Histograms that the hot path can afford: plain lists, made into Prometheus' objects when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily

SECONDS_BUCKETS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
    5.0,
)
"""Upper bounds for what takes from a tenth of a millisecond to seconds."""

MILLISECONDS_BUCKETS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 5e3, 3e4)
"""Upper bounds for times under Kafka's names, which are in milliseconds."""


class Histogram:
    """Owner of the counts of one histogram. Not for several threads at once: counts may then be lost."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the upper bounds of the buckets, ascending; one without a bound comes after them."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many values at once, at a tenth of the cost."""
        ordered = sorted(values)
        below = 0
        for place, bound in enumerate(self.bounds):
            up_to = bisect_right(ordered, bound, below)
            self.counts[place] += up_to - below
            below = up_to
        self.counts[-1] += len(ordered) - below
        self.sum += sum(ordered)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Give `family` what was counted so far."""
        cumulative = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            cumulative += count
            buckets.append((bound, cumulative))
        family.add_metric(labels, buckets, self.sum)


def histogram_family(
    name: str,
    documentation: str,
    rows: Iterable[tuple[Sequence[str], Histogram]],
    labels: Sequence[str] = (),
) -> HistogramMetricFamily:
    """A family of the histograms of `rows`: (values of `labels`, histogram)."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, histogram in rows:
        histogram.add_to(family, values)
    return family
