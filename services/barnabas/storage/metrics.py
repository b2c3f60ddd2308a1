"""Prometheus metrics under the names that the usual JMX exporter gives Kafka's own (see docs/metrics.md).

The hot path only adds to plain numbers (`counts`); they are shown when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.histograms import histogram_family
from barnabas.storage.counts import NodeCounts
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.replica.followed import Followed
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.replica.replication_quota import ReplicationQuotas
from barnabas.storage.replication.held_back import now_ms

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"

_FETCHERS: Final = "kafka_server_replicafetchermanager_"
_FOLLOWER_CLIENT: Final = "Replica"
"""What Kafka calls the follower's side of replication, as a client."""

_TOPIC_COUNTERS: Final = (
    ("messagesin", "messages_in", "Records appended"),
    ("bytesin", "bytes_in", "Record bytes appended"),
    ("bytesout", "bytes_out", "Record bytes read by clients"),
    ("bytesrejected", "bytes_rejected", "Record bytes refused"),
    ("totalproducerequests", "appends", "Appends, one for each partition of a request"),
    ("failedproducerequests", "failed_appends", "Appends that failed through this node's fault"),
    ("totalfetchrequests", "reads", "Reads for fetches, one for each partition"),
    ("failedfetchrequests", "failed_reads", "Reads that failed through this node's fault"),
)
"""(name, attribute of TopicCounts, documentation)."""

_LOG_GAUGES: Final = (
    ("size", "Bytes of all segments"),
    ("logstartoffset", "First offset that may be read"),
    ("logendoffset", "Offset that the next record gets"),
    ("numlogsegments", "Segments"),
)
"""(name, documentation)."""

LOGS_AT_ONCE: Final = 250
"""Logs that a scrape looks at before others get their turn."""


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
        counts = self._replicas.counts
        yield from _topic_counters(counts)
        yield from _node_counters(counts)
        yield GaugeMetricFamily(
            "barnabas_storage_stray_partitions",
            "Partitions on disk that the metadata does not know although nobody deleted them",
            value=self._replicas.stray_count,
        )
        yield GaugeMetricFamily(
            "barnabas_storage_unusable_topic_settings",
            "Settings of topics on this node that it cannot use: each stays as it was",
            value=_unusable_settings(self._replicas.by_partition.values()),
        )
        yield GaugeMetricFamily(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that could not be read when the node started",
            value=len(self._replicas.offline_directories),
        )
        yield from _log_gauges(list(self._replicas.by_partition.values()))
        yield from _replica_gauges(list(self._replicas.by_partition.values()), self._replicas.node_id)
        yield from _follower_gauges(list(self._replicas.by_partition.values()))
        yield _lag_by_leader(self._replicas.followed)
        yield from _quota_gauges(self._replicas.quotas)
        yield CounterMetricFamily(
            f"{_REPLICAS}failedisrupdates",
            "Changes of in-sync replicas that the controller refused",
            value=self._replicas.isr_changes.failures,
        )
        yield CounterMetricFamily(
            "barnabas_storage_cold_fetches", "Fetches read from disk", value=self._fetches.cold_reads
        )
        purgatory = GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait",
            labels=["delayedOperation"],
        )
        purgatory.add_metric(["Fetch"], len(self._purgatory))
        purgatory.add_metric(["Produce"], self._appends.waiting)
        yield purgatory


def _topic_counters(counts: NodeCounts) -> Iterator[Metric]:
    for name, attribute, text in _TOPIC_COUNTERS:
        family = CounterMetricFamily(_TOPICS + name, text, labels=["topic"])
        for topic, of_topic in counts.topics.items():
            family.add_metric([topic], getattr(of_topic, attribute))
        yield family


def _node_counters(counts: NodeCounts) -> Iterator[Metric]:
    refused = CounterMetricFamily(
        "barnabas_storage_refused_appends", "Appends that were refused", labels=["error"]
    )
    for code, count in counts.refused_appends.items():
        refused.add_metric([ErrorCode(code).name.upper()], count)
    yield refused
    for name, text, count in (
        ("replicationbytesin", "Record bytes copied from leaders", counts.replicated_bytes_in),
        ("replicationbytesout", "Record bytes sent to followers", counts.replicated_bytes_out),
        ("reassignmentbytesin", "Of these, to replicas that are being added", counts.reassigned_bytes_in),
        ("reassignmentbytesout", "The same, as their leader", counts.reassigned_bytes_out),
    ):
        yield CounterMetricFamily(_TOPICS + name, text, value=count)
    yield CounterMetricFamily(
        f"{_REPLICAS}isrshrinks", "Losses of an in-sync replica", value=counts.isr_shrinks
    )
    yield CounterMetricFamily(
        f"{_REPLICAS}isrexpands", "Returns of an in-sync replica", value=counts.isr_expands
    )
    for name, text, histogram in (
        ("barnabas_storage_append_seconds", "Appending to one partition", counts.append_times),
        ("barnabas_storage_read_seconds", "Reading for one fetch, from memory", counts.read_times),
        (
            "kafka_log_logflushstats_logflushrateandtimems",
            "Syncing a log, milliseconds",
            counts.flush_times.histogram,
        ),
    ):
        yield histogram_family(name, text, [((), histogram)])


def _unusable_settings(replicas: Iterable[Replica]) -> int:
    by_topic = {replica.topic: replica.settings.unusable for replica in replicas if replica.settings.unusable}
    return sum(len(names) for names in by_topic.values())


def _log_gauges(replicas: Sequence[Replica]) -> Iterator[Metric]:
    for start in range(0, max(len(replicas), 1), LOGS_AT_ONCE):
        yield from _gauges_of_some(replicas[start : start + LOGS_AT_ONCE])


def _gauges_of_some(replicas: Iterable[Replica]) -> Sequence[Metric]:
    families = [
        GaugeMetricFamily(f"kafka_log_log_{name}", text, labels=["topic", "partition"])
        for name, text in _LOG_GAUGES
    ]
    for replica in replicas:
        opened = replica.log
        if opened is None:
            continue
        values = (
            opened.size,
            opened.log_start_offset,
            opened.log_end_offset,
            len(opened.segments),
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric([replica.topic, str(replica.index)], value)
    return families


def _replica_gauges(replicas: Sequence[Replica], node_id: int) -> Iterator[Metric]:
    # By the metadata, as in Kafka: a leader whose own disk failed counts its partitions as under-replicated.
    led = [each for each in replicas if each.record.leader == node_id]
    in_sync = [(each, len(each.record.isr) - each.is_offline) for each in led]
    # Replicas that a reassignment is adding are not missed before it ends.
    assigned = {each: len(each.record.replicas) - len(each.record.adding_replicas) for each in led}
    needed = {each: min(each.settings.min_insync_replicas, assigned[each]) for each in led}
    for name, text, value in (
        ("leadercount", "Partitions that this node leads", sum(each.is_leader for each in replicas)),
        ("partitioncount", "Partitions that this node has", len(replicas)),
        ("offlinereplicacount", "Partitions whose disk failed", sum(each.is_offline for each in replicas)),
        (
            "underreplicatedpartitions",
            "Led partitions with replicas out of sync",
            sum(count < assigned[each] for each, count in in_sync),
        ),
        (
            "underminisrpartitioncount",
            "Led partitions below min.insync.replicas",
            sum(count < needed[each] for each, count in in_sync),
        ),
        (
            "atminisrpartitioncount",
            "Led partitions that another loss brings below min.insync.replicas",
            sum(count == needed[each] < assigned[each] for each, count in in_sync),
        ),
        (
            "reassigningpartitions",
            "Led partitions that are being reassigned",
            sum(bool(each.record.adding_replicas or each.record.removing_replicas) for each in led),
        ),
    ):
        yield GaugeMetricFamily(_REPLICAS + name, text, value=value)


def _follower_gauges(replicas: Sequence[Replica]) -> Iterator[Metric]:
    followers = [each.following for each in replicas]
    for name, text, value in (
        (
            "maxlag",
            "Committed offsets that the follower here furthest behind lacks",
            max((each.lag for each in followers), default=0),
        ),
        (
            "failedpartitionscount",
            "Followers here that copy nothing before there is another leader epoch",
            sum(each.has_failed for each in followers),
        ),
    ):
        family = GaugeMetricFamily(_FETCHERS + name, text, labels=["clientId"])
        family.add_metric([_FOLLOWER_CLIENT], value)
        yield family


def _quota_gauges(quotas: ReplicationQuotas) -> Iterator[Metric]:
    for name, text, quota in (
        ("leaderreplication", "Record bytes a second sent for throttled replicas", quotas.leader),
        ("followerreplication", "Record bytes a second copied for throttled replicas", quotas.follower),
    ):
        yield GaugeMetricFamily(f"kafka_server_{name}_byte_rate", text, value=quota.rate(now_ms()))


def _lag_by_leader(followed: Followed) -> GaugeMetricFamily:
    by_leader = GaugeMetricFamily(
        "barnabas_storage_follower_lag",
        "Committed offsets that the followers here lack, by the node that leads",
        labels=["leader"],
    )
    for leader, node in sorted(followed.by_node.items()):
        by_leader.add_metric([str(leader)], sum(each.following.lag for each in node.replicas.values()))
    return by_leader
