"""The gateway's metrics, under the names that Kafka's JMX exporter usually gives them (see docs/metrics.md).

The hot path only adds to plain numbers; Prometheus' objects are made when somebody scrapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from time import perf_counter
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.gateway.answers.cluster_faults import CLUSTER_FAULTS
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram, histogram_family
from barnabas.wire.schema import api_name

COUNTED_TOGETHER: Final = 1024
"""So many times of requests are sorted into their histograms together."""

_PREFIX: Final = "kafka_network_requestmetrics_"

_STAGES: Final = (
    ("totaltimems", "Time from reading a request to its answer, milliseconds"),
    ("requestqueuetimems", "Time that a request waited for its turn, milliseconds"),
    ("localtimems", "Time that the gateway worked on a request, milliseconds"),
    ("remotetimems", "Time that a request waited for other services, milliseconds"),
    ("throttletimems", "Time that an answer was held back by quotas, milliseconds"),
    ("responsequeuetimems", "Time that an answer waited for those before it, milliseconds"),
    ("responsesendtimems", "Time that handing an answer to the socket took, milliseconds"),
)


class _ApiCounts:
    """What is counted of one API."""

    __slots__ = (
        "at_once",
        "failed",
        "local",
        "queue",
        "remote",
        "request_bytes",
        "resent",
        "response_queue",
        "response_send",
        "total",
        "versions",
    )

    def __init__(self) -> None:
        self.total, self.queue, self.local, self.remote, self.response_queue, self.response_send = (
            Histogram(MILLISECONDS_BUCKETS) for _ in range(6)
        )
        self.at_once: list[float] = []
        """Milliseconds that requests took which were answered as they were read, not counted yet."""
        self.versions: dict[int, int] = {}
        self.request_bytes = 0
        self.failed = 0
        self.resent = 0

    def count_at_once(self) -> None:
        """Add what `at_once` holds: all of their time was spent here, and none of them waited."""
        times, self.at_once = self.at_once, []
        self.total.observe_all(times)
        self.local.observe_all(times)
        for other in (self.queue, self.remote, self.response_queue, self.response_send):
            other.counts[0] += len(times)

    def stages(self) -> tuple[Histogram, ...]:
        """The histograms in the order of _STAGES."""
        throttle = Histogram(MILLISECONDS_BUCKETS)
        # Quotas are not enforced: every request was held back for 0 ms.
        throttle.counts[0] = sum(self.total.counts)
        return (
            *(self.total, self.queue, self.local, self.remote),
            *(throttle, self.response_queue, self.response_send),
        )


class RequestMetrics(Collector):
    """Owns the counts of requests and errors of this process."""

    def __init__(self) -> None:
        self._apis: dict[int, _ApiCounts] = {}
        self._errors: Counter[tuple[int, int]] = Counter()

    def observe(self, times: RequestTimes, written: float, sent: float) -> None:
        """Count one request whose answer was handed to the socket from `written` to `sent` (perf_counter)."""
        counts = self._apis.get(times.api_key)
        if counts is None:
            counts = self._apis[times.api_key] = _ApiCounts()
        if times.errors is not None:
            self._count_errors(times.api_key, times.errors, counts)
        answered = times.answered
        if not answered:
            return  # refused before it was a request that is served
        counts.versions[times.api_version] = counts.versions.get(times.api_version, 0) + 1
        counts.request_bytes += times.request_bytes
        counts.resent += times.is_resent
        started, local = times.started, times.local_seconds
        counts.total.observe((sent - times.received) * 1000)
        counts.queue.observe((started - times.received) * 1000)
        counts.local.observe(local * 1000)
        counts.remote.observe(max(0.0, answered - started - local) * 1000)
        counts.response_queue.observe((written - answered) * 1000)
        counts.response_send.observe((sent - written) * 1000)

    def observe_at_once(
        self,
        api_key: int,
        version: int,
        request_bytes: int,
        received: float,
        errors: Collection[int] | None = None,
    ) -> None:
        """Count one request that was answered as soon as it was read, at `received` (perf_counter), with `errors`."""
        counts = self._apis.get(api_key)
        if counts is None:
            counts = self._apis[api_key] = _ApiCounts()
        counts.versions[version] = counts.versions.get(version, 0) + 1
        counts.request_bytes += request_bytes
        if errors is not None:
            self._count_errors(api_key, errors, counts)
        at_once = counts.at_once
        at_once.append((perf_counter() - received) * 1000)
        if len(at_once) >= COUNTED_TOGETHER:
            counts.count_at_once()

    def observe_refused(self, times: RequestTimes) -> None:
        """Count the errors of a request that ends its connection instead of being answered."""
        if times.errors is not None:
            counts = self._apis.setdefault(times.api_key, _ApiCounts())
            self._count_errors(times.api_key, times.errors, counts)

    def _count_errors(self, api_key: int, errors: Collection[int], counts: _ApiCounts) -> None:
        for code in errors:
            self._errors[api_key, code] += 1
        counts.failed += not CLUSTER_FAULTS.isdisjoint(errors)

    def collect(self) -> Iterator[Metric]:
        for counts in self._apis.values():
            counts.count_at_once()
        named = [(api_name(api_key), counts) for api_key, counts in self._apis.items()]
        yield from self._times(named)
        requests = CounterMetricFamily(
            f"{_PREFIX}requests", "Requests answered", labels=["request", "version"]
        )
        request_bytes = CounterMetricFamily(f"{_PREFIX}requestbytes", "Bytes of requests", labels=["request"])
        failed = CounterMetricFamily(
            "barnabas_gateway_failed_requests",
            "Requests whose answer held an error that is the cluster's fault",
            labels=["request"],
        )
        resent = CounterMetricFamily(
            "barnabas_gateway_resent_requests",
            "Requests of which a leader refused something that was sent on to who leads instead",
            labels=["request"],
        )
        for name, counts in named:
            for version, count in counts.versions.items():
                requests.add_metric([name, str(version)], count)
            request_bytes.add_metric([name], counts.request_bytes)
            failed.add_metric([name], counts.failed)
            resent.add_metric([name], counts.resent)
        errors = CounterMetricFamily(
            f"{_PREFIX}errors", "Error codes in answers", labels=["request", "error"]
        )
        for (api_key, code), count in self._errors.items():
            errors.add_metric([api_name(api_key), ErrorCode(code).name.upper()], count)
        yield from (requests, request_bytes, failed, resent, errors)

    @staticmethod
    def _times(named: list[tuple[str, _ApiCounts]]) -> Iterator[HistogramMetricFamily]:
        stages = [(name, counts.stages()) for name, counts in named]
        for number, (stage, text) in enumerate(_STAGES):
            rows = [([name], histograms[number]) for name, histograms in stages]
            yield histogram_family(f"{_PREFIX}{stage}", text, rows, labels=["request"])
