"""What the coordinator measures: Kafka's gauges under the names that the JMX exporter gives them, and our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.runtime.metrics import RuntimeMetrics

_PREFIX: Final = "kafka_coordinator_group_groupmetadatamanager_num"


class CoordinatorMetrics:
    """Owns the counters of one coordinator."""

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
        self.offset_expirations = prometheus_client.Counter(
            "barnabas_coordinator_offset_expirations",
            "Offsets deleted after their retention",
            registry=registry,
        )
        self.partitions = RuntimeMetrics(registry)

    def watch_shards(
        self,
        shards: Callable[[], Iterable[GroupShard]],
        owned: Callable[[], int],
        read_only: Callable[[], int],
    ) -> None:
        """Count groups and offsets of `shards()`, those of `owned()` that are loaded, when the metrics are read.

        `read_only` are those of them whose log takes no writes."""
        self._registry.register(_ShardCollector(shards, owned, read_only))


class _ShardCollector(Collector):
    def __init__(
        self,
        shards: Callable[[], Iterable[GroupShard]],
        owned: Callable[[], int],
        read_only: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._owned = owned
        self._read_only = read_only

    def collect(self) -> Iterator[Metric]:
        states: Counter[GroupState] = Counter()
        offsets = loaded = waiting = members = 0
        for shard in self._shards():
            loaded += 1
            for group in shard.groups.values():
                states[group.state] += 1
                waiting += len(group.joining) + len(group.syncing)
                members += len(group.members)
            offsets += sum(
                len(partitions) for topics in shard.offsets.values() for partitions in topics.values()
            )
        yield GaugeMetricFamily(f"{_PREFIX}groups", "Groups", value=states.total())
        for state in GroupState:
            name = f"{_PREFIX}groups{state.lower()}"
            yield GaugeMetricFamily(name, f"Groups in state {state}", value=states[state])
        yield GaugeMetricFamily(f"{_PREFIX}offsets", "Committed offsets", value=offsets)
        yield GaugeMetricFamily(
            "barnabas_coordinator_loaded_partitions",
            "Partitions of __consumer_offsets that this coordinator serves",
            value=loaded,
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_loading_partitions",
            "Partitions of __consumer_offsets that this coordinator owns and has not loaded",
            value=self._owned() - loaded,
        )
        yield GaugeMetricFamily(
            "barnabas_coordinator_read_only_partitions",
            "Partitions of __consumer_offsets whose log takes no writes: only what needs none is served",
            value=self._read_only(),
        )
        purgatory = GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "What waits", labels=["delayedOperation"]
        )
        purgatory.add_metric(["Rebalance"], waiting)
        purgatory.add_metric(["Heartbeat"], members)
        yield purgatory
