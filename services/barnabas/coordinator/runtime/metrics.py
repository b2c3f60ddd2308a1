"""What the runtime measures of a coordinator's log."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client.registry import CollectorRegistry

_LOAD_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RuntimeMetrics:
    """Owns the counters of one coordinator's partitions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.load_seconds = prometheus_client.Histogram(
            "barnabas_coordinator_partition_load_seconds",
            "How long it took to read a partition of an internal topic",
            buckets=_LOAD_BUCKETS,
            registry=registry,
        )
        self.unloads = prometheus_client.Counter(
            "barnabas_coordinator_partition_failures",
            "Times that a partition had to be read again because of its log, or could not be",
            registry=registry,
        )
        self.append_seconds = prometheus_client.Histogram(
            "barnabas_coordinator_append_seconds",
            "How long a write to an internal topic took to be committed",
            registry=registry,
        )
