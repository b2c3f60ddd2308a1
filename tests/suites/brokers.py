"""The two clusters that suites run against, one at a time: one of Barnabas and one of a real Apache Kafka.

Each has three nodes and new topics three replicas, unless a client says otherwise; two of them have to be in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from real_kafka import kafka_version
from real_kafka_cluster import RealKafkaCluster
from running_cluster import Cluster
from suite import Suite

NODES: Final = 3

KAFKA_LIKE_UP: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}
"""As `barnabas up --nodes 3` has them; all else stays at Kafka's defaults."""

ROOMY: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
"""A suite may send batches of many megabytes."""

Broker = Callable[[Suite], AbstractContextManager[str]]
"""Starts a cluster as a suite wants it and gives the address of its first broker; with the context it is gone."""


@contextmanager
def barnabas(suite: Suite) -> Iterator[str]:
    """A fresh cluster of Barnabas."""
    flags = [part for setting in suite.settings for part in ("--override", setting)]
    cluster = Cluster(nodes=NODES, flags=("--host", suite.host, *flags))
    if suite.port is not None:
        cluster.port = suite.port
    cluster.bootstrap = f"{suite.host}:{cluster.port}"
    with cluster:
        yield cluster.bootstrap


@contextmanager
def apache_kafka(suite: Suite) -> Iterator[str]:
    """A fresh Kafka, with its own defaults but for what the suite sets."""
    settings = dict(setting.split("=", 1) for setting in suite.settings)
    cluster = RealKafkaCluster(
        settings={**KAFKA_LIKE_UP, **settings}, jvm_flags=ROOMY, host=suite.host, first_port=suite.port
    )
    with cluster:
        yield f"{suite.host}:{cluster.port}"


def kafka_name() -> str:
    """What the page calls the real one."""
    return f"Apache Kafka {kafka_version()}"


BROKERS: Final[dict[str, Broker]] = {"barnabas": barnabas, "kafka": apache_kafka}
