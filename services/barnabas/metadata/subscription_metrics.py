"""Prometheus metrics of a service's subscription to the metadata (see docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.metadata.subscription import MetadataSubscription


class SubscriptionCollector(Collector):
    """Reads one subscription whenever Prometheus scrapes."""

    def __init__(self, subscription: MetadataSubscription) -> None:
        self._subscription = subscription

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a controller."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "barnabas_metadata_refusals",
            "Metadata that were refused because they do not continue those that are known",
            value=self._subscription.refusals,
        )
