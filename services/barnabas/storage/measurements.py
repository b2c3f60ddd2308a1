"""Prometheus metrics under the names that the usual JMX exporter gives Kafka's own.

The hot path only adds to plain integers of the partitions; they are summed up when somebody asks. Counters of a
partition start at 0 with the process and go with the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.storage.delayed_fetch import FetchPurgatory
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.partition import Partition
from barnabas.storage.replicas import Replicas

_TOPIC_METRICS = "kafka_server_brokertopicmetrics_"


class StorageCollector(Collector):
    """Reads the state of one node whenever Prometheus scrapes it."""

    def __init__(
        self, replicas: Replicas, appends: AppendHandler, fetches: FetchHandler, purgatory: FetchPurgatory
    ) -> None:
        self._replicas = replicas
        self._appends = appends
        self._fetches = fetches
        self._purgatory = purgatory

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        partitions = list(self._replicas.partitions.values())
        yield from _topic_counters(partitions)
        yield from _log_gauges(partitions)
        yield from _replica_gauges(partitions)
        yield _counter(
            "kafka_server_brokertopicmetrics_totalproducerequests", "Appends", self._appends.requests
        )
        yield _counter(
            "kafka_server_brokertopicmetrics_totalfetchrequests", "Fetches", self._fetches.requests
        )
        yield _counter("barnabas_storage_cold_fetches", "Fetches read from disk", self._fetches.cold_reads)
        purgatory = GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait",
            labels=["delayedOperation"],
        )
        purgatory.add_metric(["Fetch"], len(self._purgatory))
        purgatory.add_metric(["Produce"], self._appends.waiting)
        yield purgatory


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _topic_counters(partitions: Iterable[Partition]) -> Iterator[Metric]:
    totals: dict[str, list[int]] = {}
    for partition in partitions:
        counts = totals.setdefault(partition.topic, [0, 0, 0, 0])
        counts[0] += partition.messages_in
        counts[1] += partition.bytes_in
        counts[2] += partition.bytes_out
        counts[3] += partition.failed_appends
    for number, (name, text) in enumerate(
        (
            ("messagesin", "Records appended"),
            ("bytesin", "Record bytes appended"),
            ("bytesout", "Record bytes read by clients"),
            ("failedproducerequests", "Appends to a partition that its log refused"),
        )
    ):
        family = CounterMetricFamily(_TOPIC_METRICS + name, text, labels=["topic"])
        for topic, counts in totals.items():
            family.add_metric([topic], counts[number])
        yield family


def _log_gauges(partitions: Iterable[Partition]) -> Iterator[Metric]:
    names = (
        ("size", "Bytes of all segments"),
        ("logstartoffset", "First offset that may be read"),
        ("logendoffset", "Offset that the next record gets"),
        ("numlogsegments", "Segments"),
    )
    families = [
        GaugeMetricFamily(f"kafka_log_log_{name}", text, labels=["topic", "partition"])
        for name, text in names
    ]
    for partition in partitions:
        opened = partition.log
        if opened is None:
            continue
        values = (
            opened.size,
            opened.log_start_offset,
            opened.log_end_offset,
            len(opened.segment_base_offsets),
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric([partition.topic, str(partition.index)], value)
    yield from families


def _replica_gauges(partitions: list[Partition]) -> Iterator[Metric]:
    prefix = "kafka_server_replicamanager_"
    leaders = [partition for partition in partitions if partition.is_leader]
    under_replicated = sum(len(each.record.isr) < len(each.record.replicas) for each in leaders)
    under_min = sum(
        len(each.record.isr) < min(each.settings.min_insync_replicas, len(each.record.replicas))
        for each in leaders
    )
    offline = sum(each.is_offline for each in partitions)
    for name, text, value in (
        ("leadercount", "Partitions that this node leads", len(leaders)),
        ("partitioncount", "Partitions that this node has", len(partitions)),
        ("offlinereplicacount", "Partitions whose disk failed", offline),
        ("underreplicatedpartitions", "Led partitions with replicas out of sync", under_replicated),
        ("underminisrpartitioncount", "Led partitions below min.insync.replicas", under_min),
    ):
        yield GaugeMetricFamily(prefix + name, text, value=value)
