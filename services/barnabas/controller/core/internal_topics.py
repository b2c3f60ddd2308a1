"""Internal topics have three replicas, or one on each storage node while there are fewer than three.

Nobody creates them, so nobody would see to it that they survive what other topics do: a cluster that began with one
node and grew would lose its groups with that node. Where the setting of the number was given, that holds instead, as in
Kafka: a topic is not created before there are so many nodes, and never grows by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.controller.core.decision import NOT_SET, ClusterDefaults, Decision
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.messages.controller_pb2 import AlterPartitionReassignmentsRequest, PartitionReassignment
from barnabas.messages.metadata_pb2 import NodeRecord, PartitionRecord
from barnabas.metadata.image import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, NO_LEADER, MetadataImage

REPLICAS: Final = 3
"""What Kafka's offsets.topic.replication.factor and transaction.state.log.replication.factor are by default."""

Grown = tuple[PartitionReassignment, ...]
"""Partitions that get further replicas, each with all that it is to have."""


def internal_replication_factor(image: MetadataImage, name: str, defaults: ClusterDefaults) -> int:
    """How many replicas the internal topic `name` is created with."""
    chosen = _chosen(name, defaults)
    return min(REPLICAS, max(len(_takers(image)), 1)) if chosen == NOT_SET else chosen


def grow_internal_topics(image: MetadataImage, defaults: ClusterDefaults, most: int) -> Decision[Grown]:
    """Begin to add replicas where partitions of internal topics have fewer than they should, to `most` at a time.

    Nothing is moved or removed, the order of the replicas stays, and so does who leads. A partition that nobody leads,
    or that is being reassigned, is left alone. One whose new replicas wait for a node that is away takes up no place.
    """
    takers = _takers(image)
    growing = 0
    short: list[tuple[str, PartitionRecord]] = []
    held: Counter[int] = Counter()
    for name in sorted(INTERNAL_TOPICS):
        topic = image.topics.get(name)
        for partition in () if topic is None else topic.partitions:
            held.update(partition.replicas)
            if partition.adding_replicas or partition.removing_replicas:
                growing += partition.leader != NO_LEADER and takers.keys() >= set(partition.adding_replicas)
            elif (
                len(partition.replicas) < REPLICAS
                and partition.leader != NO_LEADER
                and _chosen(name, defaults) == NOT_SET
                and takers.keys() - set(partition.replicas)
            ):
                short.append((name, partition))
    wanted = [
        PartitionReassignment(
            topic=name,
            partition=partition.partition,
            replicas=_with_more(image.nodes, takers.values(), partition.replicas, held),
        )
        for name, partition in short[: max(most - growing, 0)]
    ]
    request = AlterPartitionReassignmentsRequest(partitions=wanted, allow_replication_factor_change=True)
    return Decision(alter_partition_reassignments(image, request).records, tuple(wanted))


def _chosen(name: str, defaults: ClusterDefaults) -> int:
    """The number of replicas that was set for the topic."""
    return defaults.offsets_topic_replication_factor if name == GROUP_METADATA_TOPIC else NOT_SET


def _takers(image: MetadataImage) -> dict[int, NodeRecord]:
    """The nodes that new replicas may go to."""
    return {node.node_id: node for node in image.live_nodes() if not node.stopping}


def _with_more(
    nodes: Mapping[int, NodeRecord], takers: Iterable[NodeRecord], replicas: Iterable[int], held: Counter[int]
) -> list[int]:
    """`replicas`, then new ones: in racks that the partition is not in yet where there are such, then on the nodes that
    hold the fewest, which `held` counts and is told of."""
    chosen = list(replicas)
    racks = {nodes[each].rack for each in chosen if each in nodes}
    free = [node for node in takers if node.node_id not in chosen]
    while free and len(chosen) < REPLICAS:
        best = min(free, key=lambda node: (node.rack in racks, held[node.node_id], node.node_id))
        free.remove(best)
        chosen.append(best.node_id)
        racks.add(best.rack)
        held[best.node_id] += 1
    return chosen
