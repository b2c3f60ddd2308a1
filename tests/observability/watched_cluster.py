"""A cluster with traffic, a canary and a Prometheus that watches it.

`python tests/observability/watched_cluster.py --seconds 240 --plot docs/dashboards.png` draws the picture of the
documentation: half way a gateway is killed, and started again.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    sys.path[:0] = [str(HERE.parent / "integration"), str(HERE.parents[1] / "deploy" / "observability")]

from observed_cluster import ObservedCluster, observed_cluster
from prometheus_server import PrometheusServer, prometheus_server
from traffic import traffic

JOBS = ("gateway", "storage", "controller", "coordinator", "canary")


class Watched(NamedTuple):
    """What runs."""

    cluster: ObservedCluster
    prometheus: PrometheusServer


@contextlib.contextmanager
def watched_cluster(folder: Path, *, scrape_seconds: float = 1.0) -> Iterator[Watched]:
    """Everything runs while the context is open."""
    with observed_cluster(folder) as cluster:
        cluster.start()
        targets = {job: cluster.instances_of(job) for job in JOBS}
        with (
            prometheus_server(folder, targets, scrape_seconds=scrape_seconds) as prometheus,
            traffic(cluster.gateways[-1]),
        ):
            yield Watched(cluster, prometheus)


def main() -> None:
    import plot

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--plot", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, watched_cluster(Path(folder)) as watched:
        time.sleep(arguments.seconds / 2)
        watched.cluster.instances["gateway-1"].kill()
        time.sleep(arguments.seconds / 8)
        watched.cluster.start("gateway-1")
        time.sleep(arguments.seconds * 3 / 8)
        plot.draw(watched.prometheus.url, arguments.plot, minutes=arguments.seconds / 60, rate_interval="15s")


if __name__ == "__main__":
    main()
