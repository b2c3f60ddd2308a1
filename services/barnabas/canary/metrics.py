"""What the canary has seen, as Prometheus metrics `barnabas_canary_*`. `gateway` is an address that it was given."""

from __future__ import annotations

from typing import Final

import prometheus_client
from prometheus_client.registry import CollectorRegistry

OPERATIONS: Final = ("produce", "fetch")
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class CanaryMetrics:
    """Owns the canary's counters, and hears the ledger's verdicts. All of a gateway's start at 0 when it is added."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> prometheus_client.Counter:
            return prometheus_client.Counter(f"barnabas_canary_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> prometheus_client.Gauge:
            return prometheus_client.Gauge(f"barnabas_canary_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> prometheus_client.Histogram:
            return prometheus_client.Histogram(
                f"barnabas_canary_{name}", text, ["gateway"], buckets=_BUCKETS, registry=registry
            )

        self.attempts = counter("attempts", "Records to produce or to fetch", "gateway", "operation")
        self.failures = counter("failures", "Of those, not done in time", "gateway", "operation")
        self.produce_seconds = histogram("produce_seconds", "From a record's send to its acknowledgement")
        self.end_to_end_seconds = histogram(
            "end_to_end_seconds", "From a record's send to its being read through this gateway"
        )
        self.freshness_seconds = gauge(
            "freshness_seconds", "Age of the newest record that was read through this gateway", "gateway"
        )
        self.acknowledged = counter("acknowledged_records", "Records that the cluster acknowledged")
        self.lost_records = counter("lost_records", "Acknowledged records that could not be read")
        self.recovered_records = counter("recovered_records", "Records counted as lost that were read later")
        self.duplicates = counter("duplicate_records", "Records read twice, at two offsets", "gateway")
        self.out_of_order = counter("out_of_order_records", "Records read after a later one", "gateway")
        self.unread = gauge("unread_records", "Acknowledged records that nobody has read yet")
        self.gateways = gauge("gateways", "Gateways that are watched")
        self.partitions = gauge("partitions", "Partitions of the canary's topic")

    def add_gateway(self, gateway: str) -> None:
        for operation in OPERATIONS:
            self.attempts.labels(gateway, operation)
            self.failures.labels(gateway, operation)
        for metric in (self.produce_seconds, self.end_to_end_seconds, self.duplicates, self.out_of_order):
            metric.labels(gateway)

    def remove_gateway(self, gateway: str) -> None:
        for operation in OPERATIONS:
            self.attempts.remove(gateway, operation)
            self.failures.remove(gateway, operation)
        for metric in (self.produce_seconds, self.end_to_end_seconds, self.duplicates, self.out_of_order):
            metric.remove(gateway)
        self.freshness_seconds.remove(gateway)

    def produced(self, gateway: str, seconds: float) -> None:
        self.attempts.labels(gateway, "produce").inc()
        self.produce_seconds.labels(gateway).observe(seconds)
        self.acknowledged.inc()

    def produce_failed(self, gateway: str) -> None:
        self.attempts.labels(gateway, "produce").inc()
        self.failures.labels(gateway, "produce").inc()

    def fetched(self, reader: str, end_to_end_seconds: float) -> None:
        self.attempts.labels(reader, "fetch").inc()
        self.end_to_end_seconds.labels(reader).observe(end_to_end_seconds)

    def fetch_failed(self, reader: str) -> None:
        self.attempts.labels(reader, "fetch").inc()
        self.failures.labels(reader, "fetch").inc()

    def lost(self) -> None:
        self.lost_records.inc()

    def recovered(self) -> None:
        self.recovered_records.inc()

    def duplicated(self, reader: str) -> None:
        self.duplicates.labels(reader).inc()

    def reordered(self, reader: str) -> None:
        self.out_of_order.labels(reader).inc()
