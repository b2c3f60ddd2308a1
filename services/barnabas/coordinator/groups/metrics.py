"""What is measured of groups: Kafka's gauges under the names that the JMX exporter gives them, and our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, TypeAlias

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroupState
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.records import GroupLogRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.runtime.metrics import RuntimeMetrics
from barnabas.coordinator.runtime.owned_partitions import OwnedPartitions

GroupPartitions: TypeAlias = OwnedPartitions[GroupShard, Decision, GroupLogRecord]

_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager_num"
_NEW_PREFIX: Final = "kafka_server_group_coordinator_metrics_"


class GroupMetrics:
    """Owns the counters of one coordinator of groups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.rebalances = prometheus_client.Counter(
            "barnabas_coordinator_completed_rebalances",
            "Generations that got their assignment",
            registry=registry,
        )
        self.offset_commits = prometheus_client.Counter(
            "barnabas_coordinator_offset_commits", "Offsets committed", registry=registry
        )
        self.transactional_offset_commits = prometheus_client.Counter(
            "barnabas_coordinator_transactional_offset_commits",
            "Offsets committed as part of transactions, whatever became of these",
            registry=registry,
        )
        self.offset_expirations = prometheus_client.Counter(
            "barnabas_coordinator_offset_expirations",
            "Offsets deleted after their retention",
            registry=registry,
        )
        self.partitions = RuntimeMetrics(registry)

    def watch(self, partitions: GroupPartitions) -> None:
        """Count the groups and offsets of `partitions`, and these themselves, when the metrics are read."""
        self._registry.register(_PartitionsCollector(partitions))


class _PartitionsCollector(Collector):
    def __init__(self, partitions: GroupPartitions) -> None:
        self._partitions = partitions

    def collect(self) -> Iterator[Metric]:
        states: Counter[GroupState] = Counter()
        consumer_states: Counter[ConsumerGroupState] = Counter()
        offsets = loaded = waiting = members = pending = open_transactions = 0
        for shard in self._partitions.shards():
            loaded += 1
            pending += len(shard.pending)
            open_transactions += shard.producers.open_count
            for group in shard.groups.values():
                states[group.state] += 1
                waiting += len(group.joining) + len(group.syncing)
                members += len(group.members)
            for consumer_group in shard.consumers.groups.values():
                consumer_states[consumer_group.state] += 1
                members += len(consumer_group.members)
            offsets += sum(
                len(partitions) for topics in shard.offsets.values() for partitions in topics.values()
            )
        yield GaugeMetricFamily(f"{_PREFIX}groups", "Classic groups", value=states.total())
        for state in GroupState:
            name = f"{_PREFIX}groups{state.lower()}"
            yield GaugeMetricFamily(name, f"Groups in state {state}", value=states[state])
        yield from _newer_metrics(states.total(), consumer_states)
        yield GaugeMetricFamily(f"{_PREFIX}offsets", "Committed offsets", value=offsets)
        yield GaugeMetricFamily(
            "barnabas_coordinator_pending_offsets", "Offsets of transactions that are open", value=pending
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_open_transactions",
            "Transactions open in partitions of __consumer_offsets, once for each partition",
            value=open_transactions,
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_loaded_partitions",
            "Partitions of __consumer_offsets that this coordinator serves",
            value=loaded,
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_loading_partitions",
            "Partitions of __consumer_offsets that this coordinator owns and has not loaded",
            value=len(self._partitions.runtimes()) - loaded,
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_read_only_partitions",
            "Partitions of __consumer_offsets whose log takes no writes: only what needs none is served",
            value=self._partitions.read_only(),
        )
        purgatory = GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "What waits", labels=["delayedOperation"]
        )
        purgatory.add_metric(["Rebalance"], waiting)
        purgatory.add_metric(["Heartbeat"], members)
        yield purgatory


def _newer_metrics(classic: int, consumer: Counter[ConsumerGroupState]) -> Iterator[Metric]:
    """The names Kafka's newer coordinator gives the groups of each protocol."""
    by_protocol = GaugeMetricFamily(f"{_NEW_PREFIX}group_count", "Groups", labels=["protocol"])
    by_protocol.add_metric(["classic"], classic)
    by_protocol.add_metric(["consumer"], consumer.total())
    yield by_protocol
    by_state = GaugeMetricFamily(
        f"{_NEW_PREFIX}consumer_group_count", "Groups of the newer protocol", labels=["state"]
    )
    for state in ConsumerGroupState:
        by_state.add_metric([state.lower()], consumer[state])
    yield by_state
