"""Moves between log directories, and cordoned directories, as Prometheus sees them: Kafka's names where it has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.storage.moves.log_moves import LogMoves

_MANAGER: Final = "kafka_server_replicaalterlogdirsmanager_"

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
        for name, text, value in (
            ("maxlag", "Offsets that the future replica furthest behind lacks", self._moves.lag_max),
            ("failedpartitionscount", "Replicas here whose last move has failed", self._moves.failed_count),
        ):
            family = GaugeMetricFamily(_MANAGER + name, text, labels=["clientId"])
            family.add_metric([_MOVER_CLIENT], value)
            yield family
        yield GaugeMetricFamily(
            "kafka_server_alterlogdirsreplication_byte_rate",
            "Record bytes a second copied by moves between log directories",
            value=self._moves.pace.copied_rate(),
        )
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
        yield CounterMetricFamily(
            "barnabas_storage_moved_bytes",
            "Record bytes copied by moves between log directories",
            value=self._moves.copied_bytes,
        )
