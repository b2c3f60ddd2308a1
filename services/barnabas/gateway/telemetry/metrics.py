"""What becomes of client telemetry, for Prometheus; the names are those of Kafka's client-metrics group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_PREFIX: Final = "kafka_server_client_metrics_"


class TelemetryMetrics(Collector):
    """Owner of the counts; whoever does something adds to them."""

    def __init__(self) -> None:
        self.instances = 0
        self.unknown_subscriptions = 0
        self.throttled = 0
        self.accepted = 0
        self.invalid = 0
        self.dropped: Counter[str] = Counter()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        yield GaugeMetricFamily(f"{_PREFIX}instance_count", "Client instances that are known", self.instances)
        yield CounterMetricFamily(
            f"{_PREFIX}unknown_subscription_request_count",
            "Pushes for a subscription that the client does not have",
            self.unknown_subscriptions,
        )
        yield CounterMetricFamily(
            f"{_PREFIX}throttle_count", "Requests before the push interval was over", self.throttled
        )
        yield CounterMetricFamily(
            f"{_PREFIX}plugin_export_count", "Pushes handed over for export", self.accepted
        )
        yield CounterMetricFamily(
            f"{_PREFIX}plugin_error_count", "Pushes that could not be read", self.invalid
        )
        dropped = CounterMetricFamily(
            "barnabas_gateway_client_telemetry_dropped",
            "Pushes that were taken from clients and did not reach the collector",
            labels=["reason"],
        )
        for reason, count in self.dropped.items():
            dropped.add_metric([reason], count)
        yield dropped
