"""Prometheus metrics of compaction, under the names that the usual JMX exporter gives Kafka's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.kernel.clock import Clock
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.upkeep.cleaning import Cleaning

_SCHEDULE = "kafka_log_logcleanermanager_"
_CLEANER = "kafka_log_logcleaner_"


class CleanerCollector(Collector):
    """Reads what compaction has done whenever Prometheus scrapes it."""

    def __init__(self, cleaning: Cleaning, directories: LogDirectories, clock: Clock) -> None:
        self._cleaning = cleaning
        self._directories = directories
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        cleaning = self._cleaning
        failed = cleaning.uncleanable
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for key, opened in failed.items():
            path = self._directories.path_of(key)
            counts[path] += 1
            sizes[path] += opened.size
        for name, text, values in (
            ("uncleanable_partitions_count", "Partitions that cannot be compacted", counts),
            ("uncleanable_bytes", "Bytes of partitions that cannot be compacted", sizes),
        ):
            family = GaugeMetricFamily(_SCHEDULE + name, text, labels=["logDirectory"])
            for path in self._directories.paths:
                family.add_metric([path], values[path])
            yield family
        last = cleaning.last_counts
        recopied = 100 * last.bytes_written / last.bytes_read if last.bytes_read else 0.0
        for name, text, value in (
            (
                _SCHEDULE + "max_dirty_percent",
                "Uncompacted share of the dirtiest log",
                100 * cleaning.dirty_ratio_max,
            ),
            (
                _SCHEDULE + "time_since_last_run_ms",
                "Milliseconds since dirty logs were looked for",
                float(self._clock.now_ms() - cleaning.last_run_ms),
            ),
            (_CLEANER + "cleaner_recopy_percent", "Share of the last compacted log that stayed", recopied),
            (
                _CLEANER + "max_clean_time_secs",
                "Seconds that the last compaction took",
                cleaning.last_seconds,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily("barnabas_storage_cleaner_runs", "Logs compacted", value=cleaning.runs)
