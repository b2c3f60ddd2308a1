"""The gauges of a log directory's disk, read as Prometheus reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

from prometheus_client.registry import CollectorRegistry

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.files import SystemFiles
from barnabas.kernel.threads import SystemThreads
from barnabas.storage.directories.directory_lane import open_lanes
from barnabas.storage.directories.disk_metrics import DiskCollector, DiskUsage


async def test_each_directory_has_the_size_and_free_bytes_of_its_file_system(tmp_path: Path) -> None:
    with open_lanes([str(tmp_path), str(tmp_path / "gone")], SystemThreads()) as lanes:
        usage = DiskUsage(lanes, ManualClock(), SystemFiles())
        for lane in lanes.values():
            await usage.ask(lane)
    registry = CollectorRegistry()
    registry.register(DiskCollector(usage, lanes))
    total = shutil.disk_usage(tmp_path).total
    labels = {"log_directory": str(tmp_path)}
    assert registry.get_sample_value("barnabas_storage_log_directory_size_bytes", labels) == total
    free = registry.get_sample_value("barnabas_storage_log_directory_free_bytes", labels)
    assert free is not None
    assert 0 <= free <= total
    gone = {"log_directory": str(tmp_path / "gone")}
    assert registry.get_sample_value("barnabas_storage_log_directory_size_bytes", gone) is None
    assert registry.get_sample_value("barnabas_storage_log_directory_given_up", gone) == 0
    lanes[gone["log_directory"]].refusals.is_given_up = True
    assert registry.get_sample_value("barnabas_storage_log_directory_given_up", gone) == 1
    assert registry.get_sample_value("barnabas_storage_log_directory_given_up", labels) == 0
