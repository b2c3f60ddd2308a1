"""The two brokers that suites run against, one at a time: a cluster of Barnabas and a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from real_kafka import RealKafka, kafka_version
from running_cluster import Cluster, free_ports
from suite import Suite

Broker = Callable[[Suite], AbstractContextManager[str]]
"""Starts a broker as a suite wants it and gives its bootstrap address; with the context it is gone."""


@contextmanager
def barnabas(suite: Suite) -> Iterator[str]:
    """A fresh cluster of one node."""
    flags = [part for setting in suite.settings for part in ("--override", setting)]
    cluster = Cluster(flags=("--host", suite.host, *flags))
    if suite.port is not None:
        cluster.port = suite.port
    cluster.bootstrap = f"{suite.host}:{cluster.port}"
    with cluster:
        yield cluster.bootstrap


@contextmanager
def apache_kafka(suite: Suite) -> Iterator[str]:
    """A fresh Kafka of one node, with its own defaults but for what the suite sets."""
    port = suite.port or free_ports(1)
    controller = f"127.0.0.1:{free_ports(1)}"
    bootstrap = f"{suite.host}:{port}"
    addresses = {
        "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "controller.quorum.voters": f"1@{controller}",
    }
    settings = dict(setting.split("=", 1) for setting in suite.settings)
    kafka = RealKafka(settings={**addresses, **settings})
    kafka.port = port
    with kafka:
        yield bootstrap


def kafka_name() -> str:
    """What the page calls the real one."""
    return f"Apache Kafka {kafka_version()}"


BROKERS: Final[dict[str, Broker]] = {"barnabas": barnabas, "kafka": apache_kafka}
