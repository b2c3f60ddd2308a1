"""`make bench`: what this machine does with one gateway and one storage node. Reports, never judges.

python bench/run.py [--megabytes 1000] [--seconds 10] [--output bench-output]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

import workloads
from cluster import running_cluster

REACH = {
    "start to ready, s": "under 1.5",
    "resident, MB": "under 350",
    "produce 1 KiB, MB/s": "100 or more",
    "consume 1 KiB, MB/s": "200 or more",
    "produce requests/s, 64 connections": "8,000 or more",
}


def measure(megabytes: int, seconds: float, runs: int) -> dict[str, Any]:
    """All figures by name; the median of `runs` where a workload is repeated."""
    figures: dict[str, Any] = {}
    starts = []
    for _ in range(runs):
        with running_cluster() as cluster:
            starts.append(cluster.start_seconds)
            idle = (cluster.resident_mb(), cluster.proportional_mb())
    figures["start to ready, s"] = round(statistics.median(starts), 2)
    figures["resident, MB"] = round(idle[0])
    figures["proportional, MB"] = round(idle[1])
    total_bytes = megabytes * 1_000_000
    with running_cluster() as cluster:
        for record_bytes, label in ((1024, "1 KiB"), (100, "100 B")):
            size = total_bytes if record_bytes == 1024 else total_bytes // 5

            def measured(name: str, workload: Callable[[], float]) -> None:
                before = cluster.cpu_seconds()
                figures[name] = round(workload(), 1)
                after = cluster.cpu_seconds()
                figures[f"  cpu s of {name}"] = "  ".join(
                    f"{service} {after[service] - before.get(service, 0):.1f}" for service in sorted(after)
                )

            for run in range(runs):
                topic = f"bench-{record_bytes}-{run}"
                workloads.create_topic(cluster.bootstrap, topic, 1)
                measured(
                    f"produce {label}, MB/s",
                    lambda topic=topic, record_bytes=record_bytes, size=size: workloads.produce(
                        cluster.bootstrap, topic, record_bytes, size
                    ),
                )
                measured(
                    f"consume {label}, MB/s",
                    lambda topic=topic, record_bytes=record_bytes, size=size: workloads.consume(
                        cluster.bootstrap, topic, 1, record_bytes, size
                    ),
                )
        workloads.create_topic(cluster.bootstrap, "bench-requests", 1)
        rate = workloads.request_rate("127.0.0.1", cluster.port, "bench-requests", 64, seconds)
        figures["produce requests/s, 64 connections"] = round(rate["requests_per_second"])
        figures["  p50, ms"], figures["  p99, ms"] = round(rate["p50_ms"], 1), round(rate["p99_ms"], 1)
        figures["resident under load, MB"] = round(cluster.resident_mb())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="how much to produce at 1 KiB a record")
    parser.add_argument("--seconds", type=float, default=10, help="how long to send small requests")
    parser.add_argument("--runs", type=int, default=1, help="how often; the last run's figures are shown")
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    arguments = parser.parse_args()
    figures = measure(arguments.megabytes, arguments.seconds, arguments.runs)
    table = Table(
        title=f"Barnabas, one gateway, one storage node, {os.cpu_count()} cores ({platform.machine()})"
    )
    table.add_column("figure", no_wrap=True)
    table.add_column("seen", justify="right")
    table.add_column("aim", justify="right")
    for name, value in figures.items():
        table.add_row(name, str(value), REACH.get(name, ""))
    Console().print(table)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "bench.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
