"""The two clusters that suites run against, one at a time: one of Barnabas and one of a real Apache Kafka.

Each has three nodes, or as many as the suite wants, and new topics three replicas, unless the suite or a client says
otherwise; two of them have to be in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from real_kafka import kafka_version
from real_kafka_cluster import RealKafkaCluster
from running_cluster import Cluster
from suite import Suite, SuiteCluster

KAFKA_LIKE_UP: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""As `barnabas up --nodes 3` has them; all else stays at Kafka's defaults."""

ROOMY: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
"""A suite may send batches of many megabytes."""

StartCluster = Callable[[Suite], AbstractContextManager[SuiteCluster]]
"""Starts a cluster as a suite wants it; with the context it is gone."""


@contextmanager
def barnabas(suite: Suite) -> Iterator[SuiteCluster]:
    """A fresh cluster of Barnabas."""
    settings = list(suite.settings)
    if suite.first_advertised_port is not None:
        settings.append(f"advertised.listeners=PLAINTEXT://{suite.host}:{suite.first_advertised_port}")
    flags = [part for setting in settings for part in ("--override", setting)]
    if suite.racks:
        flags += ["--racks", ",".join(suite.racks)]
    cluster = Cluster(nodes=suite.nodes, flags=("--host", suite.host, *flags))
    if suite.first_port is not None:
        cluster.port = suite.first_port
    cluster.bootstrap = f"{suite.host}:{cluster.port}"
    with cluster:
        yield SuiteCluster(
            bootstrap=cluster.bootstrap,
            ports=tuple(range(cluster.port, cluster.port + suite.nodes)),
            stop=lambda broker: cluster.stop_service(f"broker-{broker}"),
            start=lambda broker: cluster.start_service(f"broker-{broker}"),
            log=cluster.log,
        )


@contextmanager
def apache_kafka(suite: Suite) -> Iterator[SuiteCluster]:
    """A fresh Kafka, with its own defaults but for what the suite sets."""
    settings = dict(setting.split("=", 1) for setting in suite.settings)
    cluster = RealKafkaCluster(
        settings={**KAFKA_LIKE_UP, **settings},
        jvm_flags=ROOMY,
        nodes=suite.nodes,
        host=suite.host,
        first_port=suite.first_port,
        first_advertised_port=suite.first_advertised_port,
        racks=dict(enumerate(suite.racks, start=1)),
        controller_apart=suite.stops_brokers,
    )
    with cluster:
        yield SuiteCluster(
            bootstrap=f"{suite.host}:{cluster.port}",
            ports=tuple(cluster.ports.values()),
            stop=cluster.stop,
            start=cluster.start,
            log=cluster.log,
        )


def kafka_name() -> str:
    """What the page calls the real one."""
    return f"Apache Kafka {kafka_version()}"


CLUSTERS: Final[dict[str, StartCluster]] = {"barnabas": barnabas, "kafka": apache_kafka}
