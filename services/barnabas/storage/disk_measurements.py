"""How full the disks of the log directories are. Kafka has no such metric; whoever runs a log needs it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_LABELS = ["log_directory"]


class DiskCollector(Collector):
    """Asks the file system about `paths` whenever Prometheus scrapes."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not touch a disk."""
        return ()

    def collect(self) -> Iterator[Metric]:
        size = GaugeMetricFamily(
            "barnabas_storage_log_directory_size_bytes",
            "Size of the file system that a log directory is on",
            labels=_LABELS,
        )
        free = GaugeMetricFamily(
            "barnabas_storage_log_directory_free_bytes", "Of it, free to this process", labels=_LABELS
        )
        for path in self._paths:
            try:
                status = os.statvfs(path)
            except OSError:  # a disk that failed: kafka_server_replicamanager_offlinereplicacount says so
                continue
            size.add_metric([path], status.f_blocks * status.f_frsize)
            free.add_metric([path], status.f_bavail * status.f_frsize)
        yield size
        yield free
