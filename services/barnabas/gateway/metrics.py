"""The gateway's measurements, under the names that Kafka's JMX exporter usually gives them.

The hot path only adds to plain numbers; Prometheus' objects are made when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from barnabas.kernel.errors import ErrorCode
from barnabas.wire.schema import api_name

_BUCKETS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0, 30000.0)


class _ApiTimes:
    __slots__ = ("bucket_counts", "request_bytes", "total_ms")

    def __init__(self) -> None:
        self.bucket_counts = [0] * (len(_BUCKETS_MS) + 1)
        self.total_ms = 0.0
        self.request_bytes = 0


class RequestMetrics(Collector):
    """Owns the counts of requests, errors and connections of this process."""

    def __init__(self, connections: Callable[[], int], budget_bytes: Callable[[], int]) -> None:
        self._times: dict[int, _ApiTimes] = {}
        self._errors: Counter[tuple[int, int]] = Counter()
        self._connections = connections
        self._budget_bytes = budget_bytes

    def observe(self, api_key: int, seconds: float, request_bytes: int) -> None:
        """Count one request answered."""
        times = self._times.get(api_key)
        if times is None:
            times = self._times[api_key] = _ApiTimes()
        milliseconds = seconds * 1000
        times.bucket_counts[bisect_left(_BUCKETS_MS, milliseconds)] += 1
        times.total_ms += milliseconds
        times.request_bytes += request_bytes

    def count_error(self, api_key: int, code: ErrorCode) -> None:
        """Count one request refused as a whole."""
        self._errors[api_key, code] += 1

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        total_time = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltimems",
            "Time from reading a request to its answer, milliseconds",
            labels=["request"],
        )
        request_bytes = CounterMetricFamily(
            "kafka_network_requestmetrics_requestbytes", "Bytes of requests", labels=["request"]
        )
        for api_key, times in self._times.items():
            name, cumulative, buckets = api_name(api_key), 0, []
            bounds = [*(str(bound) for bound in _BUCKETS_MS), "+Inf"]
            for bound, count in zip(bounds, times.bucket_counts, strict=True):
                cumulative += count
                buckets.append((bound, cumulative))
            total_time.add_metric([name], buckets, times.total_ms)
            request_bytes.add_metric([name], times.request_bytes)
        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors",
            "Requests refused as a whole, by error",
            labels=["request", "error"],
        )
        for (api_key, code), count in self._errors.items():
            errors.add_metric([api_name(api_key), ErrorCode(code).name.upper()], count)
        yield total_time
        yield request_bytes
        yield errors
        yield GaugeMetricFamily(
            "kafka_server_socketservermetrics_connection_count", "Open connections", self._connections()
        )
        yield GaugeMetricFamily(
            "barnabas_gateway_unanswered_request_bytes",
            "Bytes of requests that are not answered yet",
            self._budget_bytes(),
        )
