"""Moves between log directories, and cordoned directories, as Prometheus sees them: Kafka's names where it has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.storage.moves.log_moves import LogMoves

_MOVER_CLIENT: Final = "ReplicaAlterLogDirs"
"""What Kafka calls the copying of moves, as a client."""


class MovesCollector(Collector):
    """Reads what moves whenever Prometheus scrapes it."""

    def __init__(self, moves: LogMoves, log_dirs: Iterable[str]) -> None:
        self._moves = moves
        self._log_dirs = list(log_dirs)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        cordoned = self._moves.cordoned
        yield GaugeMetricFamily(
            "kafka_log_logmanager_cordonedlogdirectorycount",
            "Log directories into which nothing new comes",
            value=len(cordoned),
        )
        each = GaugeMetricFamily(
            "kafka_log_logmanager_logdirectorycordoned",
            "Whether nothing new comes into a log directory",
            labels=["logDirectory"],
        )
        for path in self._log_dirs:
            each.add_metric([os.path.abspath(path)], path in cordoned)
        yield each
        lag = GaugeMetricFamily(
            "kafka_server_replicaalterlogdirsmanager_maxlag",
            "Offsets that the future replica furthest behind lacks",
            labels=["clientId"],
        )
        lag.add_metric([_MOVER_CLIENT], self._moves.lag_max)
        yield lag
        yield GaugeMetricFamily(
            "barnabas_storage_moving_replicas",
            "Replicas that move to another log directory, or wait for their turn",
            value=sum(1 for _ in self._moves.under_way()),
        )
        yield GaugeMetricFamily(
            "barnabas_storage_bytes_to_move",
            "Record bytes that moves between log directories have still to copy",
            value=self._moves.left_bytes,
        )
        yield GaugeMetricFamily(
            "barnabas_storage_failed_moves",
            "Replicas whose last move has failed, and that nobody has asked to move since",
            value=self._moves.failed_count,
        )
        yield CounterMetricFamily(
            "barnabas_storage_moved_bytes",
            "Record bytes copied by moves between log directories",
            value=self._moves.copied_bytes,
        )
