"""How long syncs of logs took, all logs of one node together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram


class FlushTimes:
    """Owner of the histogram, in ms; several threads sync at the same time."""

    def __init__(self) -> None:
        self.histogram = Histogram(MILLISECONDS_BUCKETS)
        self._lock = threading.Lock()

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Count what is done in the block as one sync, if it succeeds."""
        started = perf_counter()
        yield
        elapsed_ms = (perf_counter() - started) * 1000
        with self._lock:
            self.histogram.observe(elapsed_ms)
