"""Clusters for integration tests: one that they share, and as many of their own as they like."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final

import pytest
from running_cluster import Cluster

MakeCluster = Callable[..., Cluster]

RETENTION_WAITS: Final = ("--override", "log.retention.check.interval.ms=86400000")
"""Many tests write records with timestamps of years ago, for times that they can name. Retention deletes such records
as in Kafka, at its check every five minutes; in a cluster that lives for longer than that, it must not come."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A one-node cluster that all tests share: use topics and groups of your own, and harm nothing."""
    with Cluster(flags=RETENTION_WAITS) as running:
        yield running


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """`make_cluster(nodes=3, advertise="one", flags=("--gateways", "2"))`: a started cluster for this test alone."""
    made: list[Cluster] = []

    def make(*, nodes: int = 1, advertise: str = "port", flags: tuple[str, ...] = ()) -> Cluster:
        made.append(Cluster(nodes=nodes, advertise=advertise, flags=flags))
        return made[-1].start()

    # The clusters stay on the function, for the report of a test that fails.
    make.made = made  # type: ignore[attr-defined]
    try:
        yield make
    finally:
        for running in made:
            running.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses a cluster is an integration test."""
    for item in items:
        if {"cluster", "make_cluster", "barnabas_cluster", "barnabas_cluster_factory"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.integration)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its clusters logged."""
    report = yield
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        clusters = list(getattr(arguments.get("make_cluster"), "made", ()))
        if "cluster" in arguments:
            clusters.append(arguments["cluster"])
        for number, running in enumerate(clusters, start=1):
            report.sections.append((f"log of cluster {number} at {running.bootstrap}", running.log()))
    return report
