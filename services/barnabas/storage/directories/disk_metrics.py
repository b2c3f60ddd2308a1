"""How full the disks of the log directories are, and what waits for them. Kafka has no such metrics; whoever runs a log
needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.kernel.clock import Clock
from barnabas.kernel.files import Files, SpaceStatus
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane

_LABELS = ["log_directory"]


class DiskUsage:
    """Owner of what each file system said of itself last: asking a stalled one may take for ever."""

    def __init__(self, lanes: Mapping[str, DirectoryLane], clock: Clock, files: Files) -> None:
        self._lanes = lanes
        self._clock = clock
        self._files = files
        self.known: dict[str, SpaceStatus] = {}
        """By path; nothing of a directory that failed."""

    async def run(self) -> None:
        """Ask every DISK_USAGE_SECONDS, until cancelled; each directory at its own pace."""
        async with asyncio.TaskGroup() as tasks:
            for lane in self._lanes.values():
                tasks.create_task(self._keep_asking(lane), name="disk usage")

    async def _keep_asking(self, lane: DirectoryLane) -> None:
        while True:
            await self.ask(lane)
            await self._clock.sleep(limits.DISK_USAGE_SECONDS)

    async def ask(self, lane: DirectoryLane) -> None:
        """Learn how full one directory's file system is."""
        work = partial(self._files.statvfs, lane.path)
        try:
            self.known[lane.path] = await asyncio.get_running_loop().run_in_executor(lane.upkeep, work)
        except OSError:  # a disk that failed: kafka_server_replicamanager_offlinereplicacount says so
            self.known.pop(lane.path, None)


class DiskCollector(Collector):
    """Shows what is known of the log directories, by their paths; asks no disk."""

    def __init__(self, usage: DiskUsage, lanes: Mapping[str, DirectoryLane]) -> None:
        self._usage = usage
        self._lanes = lanes

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running node."""
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
        waiting = GaugeMetricFamily(
            "barnabas_storage_log_directory_waiting_bytes",
            "Record bytes of appends that wait for a log directory",
            labels=_LABELS,
        )
        for path, status in self._usage.known.items():
            size.add_metric([path], status.f_blocks * status.f_frsize)
            free.add_metric([path], status.f_bavail * status.f_frsize)
        given_up = GaugeMetricFamily(
            "barnabas_storage_log_directory_given_up",
            "1 while a log directory's disk refuses to write, and others are to lead what is in it",
            labels=_LABELS,
        )
        for path, lane in self._lanes.items():
            waiting.add_metric([path], lane.waiting_bytes)
            given_up.add_metric([path], lane.refusals.is_given_up)
        yield size
        yield free
        yield waiting
        yield given_up
