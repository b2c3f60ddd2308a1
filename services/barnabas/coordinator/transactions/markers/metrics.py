"""What is counted of markers, and how Prometheus is shown it."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client.registry import CollectorRegistry

from barnabas.coordinator.transactions.markers.reactions import Reaction

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_RESULTS: Final = {
    Reaction.TOLD: "told",
    Reaction.OVERTAKEN: "overtaken",
    Reaction.AGAIN: "again",
    Reaction.GIVE_UP: "given_up",
    None: "failed",
}


class MarkerCounts:
    """Owns the counters of one sender of markers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        answers = prometheus_client.Counter(
            "barnabas_coordinator_markers",
            "What came of markers that end transactions, one for each partition and try",
            ["result"],
            registry=registry,
        )
        self._gone = answers.labels("gone")
        self._answers = {reaction: answers.labels(result) for reaction, result in _RESULTS.items()}
        self._seconds = prometheus_client.Histogram(
            "barnabas_coordinator_marking_seconds",
            "From the end of a transaction being certain until all of its partitions knew",
            buckets=_BUCKETS,
            registry=registry,
        )

    def on_answer(self, reaction: Reaction | None) -> None:
        """A partition answered; None for a code that nobody expected."""
        self._answers[reaction].inc()

    def on_gone(self, count: int) -> None:
        """So many partitions were deleted before they were told."""
        self._gone.inc(count)

    def on_complete(self, seconds: float) -> None:
        """All partitions of a transaction know, so long after it was certain."""
        self._seconds.observe(seconds)
