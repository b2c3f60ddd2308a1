"""Prometheus metrics of transactions in partitions, under the names that the usual JMX exporter gives Kafka's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.kernel.clock import Clock
from barnabas.kernel.histograms import histogram_family
from barnabas.storage.metrics import LOGS_AT_ONCE
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.transactions.verification import Verification

_REPLICAS: Final = "kafka_server_replicamanager_"
_VERIFICATION: Final = "kafka_server_addpartitionstotxnmanager_"

LATE_MS: Final = 5 * 60 * 1000
"""By how much more than transaction.max.timeout.ms a producer is silent before its transaction is late."""


class TransactionsCollector(Collector):
    """Reads what partitions know of transactions whenever Prometheus scrapes it."""

    def __init__(self, replicas: Replicas, verification: Verification, clock: Clock) -> None:
        self._replicas = replicas
        self._verification = verification
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        replicas = [each for each in self._replicas.by_partition.values() if each.log is not None]
        timeout_ms = self._replicas.broker_value("transaction.max.timeout.ms")
        assert isinstance(timeout_ms, int)
        silent_since_ms = self._clock.now_ms() - timeout_ms - LATE_MS
        producers = late = 0
        for start in range(0, max(len(replicas), 1), LOGS_AT_ONCE):
            some = replicas[start : start + LOGS_AT_ONCE]
            producers += sum(map(_producer_count, some))
            late += sum(_is_late(each, silent_since_ms) for each in some)
            yield _lags(some)
        yield GaugeMetricFamily(
            f"{_REPLICAS}produceridcount", "Producers that partitions here remember", value=producers
        )
        yield GaugeMetricFamily(
            f"{_REPLICAS}partitionswithlatetransactionscount",
            "Partitions with a transaction that should have ended",
            value=late,
        )
        yield CounterMetricFamily(
            f"{_VERIFICATION}verificationfailurerate",
            "Partitions of which a transaction coordinator did not say that they are part of a transaction",
            value=self._verification.failures,
        )
        yield histogram_family(
            f"{_VERIFICATION}verificationtimems",
            "Asking a transaction coordinator, milliseconds",
            [((), self._verification.times_ms)],
        )
        yield GaugeMetricFamily(
            "barnabas_storage_unverified_bytes",
            "Record bytes that wait until transaction coordinators have been asked",
            value=self._verification.waiting_bytes,
        )


def _producer_count(replica: Replica) -> int:
    return 0 if replica.log is None else len(replica.log.producer_state.producers)


def _is_late(replica: Replica, silent_since_ms: int) -> bool:
    return (
        replica.log is not None and 0 < replica.log.producer_state.oldest_open_timestamp() < silent_since_ms
    )


def _lags(replicas: Sequence[Replica]) -> Metric:
    family = GaugeMetricFamily(
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets below the high watermark that transactions hide from read_committed consumers",
        labels=["topic", "partition"],
    )
    for replica in replicas:
        high_watermark = replica.high_watermark
        lag = 0 if replica.log is None else high_watermark - replica.log.last_stable_offset(high_watermark)
        family.add_metric([replica.topic, str(replica.index)], max(lag, 0))
    return family
