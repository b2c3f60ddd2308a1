"""A Kubernetes with our images, and the release of the chart that these tests share.

They run by `make kubernetes`, or by naming this folder: they are for root, and the programs take minutes to build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubernetes_cluster import Kubernetes, Release

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 1800
"""For one test: the first also waits for an engine to be installed and for every image, and for Kubernetes to be built
unless `make kubernetes` has done that before."""

# The engine, our images, and the load are those of the compose file's tests.
sys.path[:0] = [str(HERE.parent / name) for name in ("containers", "chart")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder the time that it may need."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """A cluster of one node that has every image of the chart."""
    from compose_project import build_images, engine_environment
    from kubernetes_cluster import Kubernetes
    from rendered_chart import container_of, render

    os.environ.update(engine_environment())
    chart = render()
    etcd = container_of(chart.workload("etcd"))["image"]
    version = container_of(chart.workload("gateway"))["image"].rpartition(":")[2]
    build_images(version)
    cluster = Kubernetes()
    try:
        cluster.load(version, etcd)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def release(kubernetes: Kubernetes) -> Release:
    """The chart with its defaults, installed, and every pod of it ready."""
    from kubernetes_cluster import VALUES, Release

    release = Release(kubernetes, "barnabas", VALUES)
    release.install()
    return release
