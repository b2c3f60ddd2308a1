"""What is measured of transactions: Kafka's gauges under the names that the JMX exporter gives them, and our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from barnabas.coordinator.runtime.metrics import RuntimeMetrics
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.kind import TransactionPartitions
from barnabas.coordinator.transactions.markers.metrics import MarkerCounts
from barnabas.kernel.clock import Clock

_KAFKA_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager"

Waiting = Callable[[], Iterator[tuple[int, bool]]]
"""What `MarkerSender.waiting` tells."""


class TransactionMetrics:
    """Owns the counters of one coordinator of transactions; `partitions` are counted with those of groups."""

    def __init__(self, registry: CollectorRegistry, partitions: RuntimeMetrics) -> None:
        self._registry = registry
        self.partitions = partitions
        self.markers = MarkerCounts(registry)
        ends = prometheus_client.Counter(
            "barnabas_coordinator_transactions",
            "Transactions that were decided; those that timed out are among the aborted",
            ["end"],
            registry=registry,
        )
        self._committed, self._aborted = ends.labels("committed"), ends.labels("aborted")
        self._timed_out = prometheus_client.Counter(
            "barnabas_coordinator_transaction_time_outs",
            "Transactions that were open for longer than their producers asked for",
            registry=registry,
        )
        self._expired = prometheus_client.Counter(
            "barnabas_coordinator_transactional_id_expirations",
            "Transactional ids that were forgotten because nobody used them",
            registry=registry,
        )

    def count(self, decision: Decision) -> None:
        """What one decision led to."""
        self._committed.inc(decision.transactions_committed)
        self._aborted.inc(decision.transactions_aborted)
        self._timed_out.inc(decision.transactions_timed_out)
        self._expired.inc(decision.ids_expired)

    def watch(self, partitions: TransactionPartitions, waiting: Waiting, clock: Clock) -> None:
        """Count what there is when the metrics are read."""
        self._registry.register(_TransactionsCollector(partitions, waiting, clock))


class _TransactionsCollector(Collector):
    def __init__(self, partitions: TransactionPartitions, waiting: Waiting, clock: Clock) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        loaded = known = ongoing = unmarked = complete = 0
        begun_ms = decided_ms = now_ms = self._clock.now_ms()
        for shard in self._partitions.shards():
            loaded += 1
            known += len(shard.transactions)
            ongoing += len(shard.ongoing)
            unmarked += len(shard.unmarked)
            complete += sum(not left for left in shard.unmarked.values())
            known_ids = shard.transactions
            begun_ms = min([begun_ms, *(known_ids[each].start_ms for each in shard.ongoing)])
            decided_ms = min([decided_ms, *(known_ids[each].last_update_ms for each in shard.unmarked)])
        nobody = given_up = 0
        for partitions, is_given_up in self._waiting():
            nobody += partitions
            given_up += is_given_up
        gauges = {
            "barnabas_coordinator_transactional_ids": ("Transactional ids that are known", known),
            "barnabas_coordinator_ongoing_transactions": ("Transactions that are open", ongoing),
            "barnabas_coordinator_unmarked_transactions": (
                "Transactions that are decided, and not every partition knows",
                unmarked,
            ),
            "barnabas_coordinator_oldest_ongoing_transaction_seconds": (
                "Since when the oldest transaction is open",
                (now_ms - begun_ms) / 1000,
            ),
            "barnabas_coordinator_oldest_unmarked_transaction_seconds": (
                "Since when the oldest transaction is decided that not every partition knows",
                (now_ms - decided_ms) / 1000,
            ),
            "barnabas_coordinator_given_up_transactions": (
                "Of these, those that some partition refused as old: they are left alone for a while",
                given_up,
            ),
            f"{_KAFKA_MARKERS}_unknowndestinationqueuesize": ("Markers whose partition nobody leads", nobody),
            f"{_KAFKA_MARKERS}_logappendretryqueuesize": (
                "Transactions all of whose partitions know, and whose log does not yet",
                complete,
            ),
            "barnabas_coordinator_transactions_loaded_partitions": (
                "Partitions of __transaction_state that this coordinator serves",
                loaded,
            ),
            "barnabas_coordinator_transactions_loading_partitions": (
                "Partitions of __transaction_state that this coordinator owns and has not loaded",
                len(self._partitions.runtimes()) - loaded,
            ),
            "barnabas_coordinator_transactions_read_only_partitions": (
                "Partitions of __transaction_state whose log takes no writes: only what needs none is served",
                self._partitions.read_only(),
            ),
        }
        for name, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(name, meaning, value=value)
