"""Prometheus metrics under the names that the usual JMX exporter gives those of Kafka's controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.controller.controller import Controller
from barnabas.controller.core.cordons import is_cordoned
from barnabas.controller.counts import ControllerCounts
from barnabas.kernel.histograms import histogram_family
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.metadata.image import NO_LEADER, MetadataImage

_PREFIX: Final = "kafka_controller_kafkacontroller_"
_STATS: Final = "kafka_controller_controllerstats_"

_THROTTLES: Final = (
    (BROKER_RESOURCE, "leader.replication.throttled.rate"),
    (BROKER_RESOURCE, "follower.replication.throttled.rate"),
    (BROKER_RESOURCE, "replica.alter.log.dirs.io.max.bytes.per.second"),
    (TOPIC_RESOURCE, "leader.replication.throttled.replicas"),
    (TOPIC_RESOURCE, "follower.replication.throttled.replicas"),
)
"""What kafka-reassign-partitions sets for a time, of single nodes and topics."""


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
            yield from _of_cordons(active.image)
            yield from _of_throttles(active.image)
            yield from _of_counts(self._controller.counts)


def _of_image(image: MetadataImage) -> Iterator[Metric]:
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    offline = sum(1 for partition in partitions if partition.leader == NO_LEADER)
    moved = sum(1 for partition in partitions if partition.leader not in (NO_LEADER, partition.replicas[0]))
    live = len(image.live_nodes())
    yield _gauge("activebrokercount", "Storage nodes that are not fenced", live)
    yield _gauge("fencedbrokercount", "Storage nodes that are fenced", len(image.nodes) - live)
    stopping = sum(1 for node in image.live_nodes() if node.stopping)
    yield _gauge("controlledshutdownbrokercount", "Storage nodes that are about to stop", stopping)
    yield _gauge("globaltopiccount", "Topics", len(image.topics))
    yield _gauge("globalpartitioncount", "Partitions", len(partitions))
    yield _gauge("offlinepartitionscount", "Partitions without a leader", offline)
    yield _gauge(
        "preferredreplicaimbalancecount", "Partitions led by another than their preferred leader", moved
    )
    yield _gauge("lastcommittedrecordoffset", "The metadata's revision", image.revision)
    live_ids = {node.node_id for node in image.live_nodes()}
    away = sum(1 for each in partitions if len(live_ids.intersection(each.isr)) < len(each.replicas))
    reassigned = [each for each in partitions if each.adding_replicas or each.removing_replicas]
    added = sum(len(set(each.adding_replicas).difference(each.isr)) for each in reassigned)
    for name, text, value in (
        ("underreplicated_partitions", "Partitions with fewer in-sync replicas than replicas", away),
        ("reassigning_partitions", "Partitions that are being reassigned", len(reassigned)),
        ("replicas_being_added", "Replicas that reassignments add and that are not in sync yet", added),
        ("registered_gateways", "Gateways that are there", len(image.gateways)),
        ("registered_coordinators", "Coordinators that are there", len(image.coordinators)),
    ):
        yield GaugeMetricFamily(f"barnabas_controller_{name}", text, value=value)


def _of_cordons(image: MetadataImage) -> Iterator[Metric]:
    cordoned = {node.node_id for node in image.nodes.values() if is_cordoned(image, node)}
    held = sum(
        len(cordoned.intersection(partition.replicas))
        for topic in (image.topics.values() if cordoned else ())
        for partition in topic.partitions
    )
    for name, text, value in (
        ("cordoned_nodes", "Storage nodes all of whose log directories are cordoned", len(cordoned)),
        ("replicas_on_cordoned_nodes", "Replicas that these have", held),
    ):
        yield GaugeMetricFamily(f"barnabas_controller_{name}", text, value=value)


def _of_throttles(image: MetadataImage) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "barnabas_controller_throttles",
        "Nodes, or topics, that have a setting by which replicas are copied slowly",
        labels=["setting"],
    )
    for resource_type, setting in _THROTTLES:
        # What all brokers have together, the resource without a name, is how the cluster was set up.
        having = sum(
            1
            for (kind, name), values in image.configs.items()
            if kind == resource_type and name and values.get(setting)
        )
        family.add_metric([setting], having)
    yield family


def _of_counts(counts: ControllerCounts) -> Iterator[Metric]:
    for name, text, histogram in (
        (f"{_PREFIX}eventqueuetimems", "A change waited for those before it, ms", counts.queue_times),
        (f"{_PREFIX}eventqueueprocessingtimems", "Deciding and storing, ms", counts.processing_times),
        (f"{_STATS}leaderelectionrateandtimems", "Storing new leaders, ms", counts.election_times),
    ):
        yield histogram_family(name, text, [((), histogram)])
    for name, text, value in (
        (f"{_STATS}uncleanleaderelections", "Leaders that may lack records", counts.unclean_elections),
        (f"{_PREFIX}timedoutbrokerheartbeatcount", "Nodes that stayed away", counts.timed_out_nodes),
        (
            "barnabas_controller_elected_partitions",
            "Partitions that got another leader",
            counts.elected_partitions,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)


def _gauge(name: str, documentation: str, value: int) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, documentation, value=value)
