"""Prometheus metrics under the names that the usual JMX exporter gives those of Kafka's controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.controller.service import Controller
from barnabas.metadata.image import NO_LEADER, MetadataImage

_PREFIX: Final = "kafka_controller_kafkacontroller_"


class ControllerCollector(Collector):
    """Reads the newest image whenever Prometheus scrapes it; a standby says only that it is one."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a running controller."""
        return ()

    def collect(self) -> Iterator[Metric]:
        active = self._controller.active
        yield _gauge("activecontrollercount", "1 on the active controller", 0 if active is None else 1)
        if active is not None:
            yield from _of_image(active.image)


def _of_image(image: MetadataImage) -> Iterator[Metric]:
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    offline = sum(1 for partition in partitions if partition.leader == NO_LEADER)
    moved = sum(1 for partition in partitions if partition.leader not in (NO_LEADER, partition.replicas[0]))
    live = len(image.live_nodes())
    yield _gauge("activebrokercount", "Storage nodes that are not fenced", live)
    yield _gauge("fencedbrokercount", "Storage nodes that are fenced", len(image.nodes) - live)
    yield _gauge("globaltopiccount", "Topics", len(image.topics))
    yield _gauge("globalpartitioncount", "Partitions", len(partitions))
    yield _gauge("offlinepartitionscount", "Partitions without a leader", offline)
    yield _gauge(
        "preferredreplicaimbalancecount", "Partitions led by another than their preferred leader", moved
    )
    yield _gauge("lastcommittedrecordoffset", "The metadata's revision", image.revision)


def _gauge(name: str, documentation: str, value: int) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, documentation, value=value)
