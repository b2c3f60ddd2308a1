"""Internal topics have three replicas, or one on each storage node while there are fewer than three.

Nobody creates them, so nobody would see to it that they survive what other topics do: a cluster that began with one
node and grew would lose its groups with that node. Where the setting of the number was given, that holds instead, as in
Kafka: a topic is not created before there are so many nodes, and never grows by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.controller.core.cordons import uncordoned_nodes
from barnabas.controller.core.decision import NOT_SET, ClusterDefaults, Decision
from barnabas.controller.core.partition_change import needed_to_finish
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.messages.controller_pb2 import AlterPartitionReassignmentsRequest, PartitionReassignment
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord
from barnabas.metadata.image import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, NO_LEADER, MetadataImage

REPLICAS: Final = 3
"""What Kafka's offsets.topic.replication.factor and transaction.state.log.replication.factor are by default."""


class Growth(NamedTuple):
    """What a look at the internal topics led to. Each wish names all replicas that its partition is to have."""

    begun: tuple[PartitionReassignment, ...]
    given_up: tuple[PartitionReassignment, ...]
    """Their partitions have the replicas again that they had before."""
    refused: tuple[tuple[PartitionReassignment, str], ...]
    """With the reason: nothing came of it."""


def internal_replication_factor(image: MetadataImage, name: str, defaults: ClusterDefaults) -> int:
    """How many replicas the internal topic `name` is created with."""
    chosen = _chosen(name, defaults)
    return min(REPLICAS, max(len(_takers(image)), 1)) if chosen == NOT_SET else chosen


def grow_internal_topics(image: MetadataImage, defaults: ClusterDefaults, most: int) -> Decision[Growth]:
    """Begin to add replicas where partitions of internal topics have fewer than they should, to `most` at a time.

    A replica whose node was unregistered is none any more: another one takes its place. Nothing else is moved or
    removed, the order of the replicas stays, and so does who leads. A partition that nobody leads, or that is being
    reassigned, is left alone, unless that waits for a node that was unregistered: it would never end. Another node
    takes its place, or if there is none the reassignment is given up. One whose new replicas wait for a node that is
    away takes up no place, nor does one for which nothing can be begun.
    """
    takers = _takers(image)
    growing = 0
    waiting: list[tuple[str, PartitionRecord]] = []
    held: Counter[int] = Counter()
    for name in sorted(INTERNAL_TOPICS):
        topic = image.topics.get(name)
        may_grow = _chosen(name, defaults) == NOT_SET
        for partition in () if topic is None else topic.partitions:
            held.update(partition.replicas)
            if _is_moving(image, partition):
                growing += partition.leader != NO_LEADER and takers.keys() >= set(partition.adding_replicas)
            elif may_grow and partition.leader != NO_LEADER:
                waiting.append((name, partition))
    records: list[MetadataRecord] = []
    begun: list[PartitionReassignment] = []
    given_up: list[PartitionReassignment] = []
    refused: list[tuple[PartitionReassignment, str]] = []
    for name, partition in waiting:
        if len(begun) + growing >= most:
            break
        kept = _kept(image, partition)
        added = _further(image.nodes, takers.values(), kept, held) if kept else []
        if not added and not _is_reassigned(partition):
            continue
        wish = PartitionReassignment(topic=name, partition=partition.partition)
        if added:
            wish.replicas[:] = [*kept, *added]
        else:
            wish.cancel = True
        request = AlterPartitionReassignmentsRequest(partitions=[wish], allow_replication_factor_change=True)
        decision = alter_partition_reassignments(image, request)
        (result,) = decision.response.results
        if result.error_code:
            refused.append((wish, result.error_message))
            continue
        held.update(added)
        records += decision.records
        (begun if added else given_up).append(wish)
    return Decision(tuple(records), Growth(tuple(begun), tuple(given_up), tuple(refused)))


def _is_reassigned(partition: PartitionRecord) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _is_moving(image: MetadataImage, partition: PartitionRecord) -> bool:
    """Whether it is being reassigned, and that can end."""
    needed = needed_to_finish(partition.replicas, partition.adding_replicas, partition.removing_replicas)
    return _is_reassigned(partition) and all(node in image.nodes for node in needed)


def _kept(image: MetadataImage, partition: PartitionRecord) -> list[int]:
    """The replicas that are to stay: not those that are on their way out, nor those of nodes that were unregistered."""
    return [
        node for node in partition.replicas if node in image.nodes and node not in partition.removing_replicas
    ]


def _chosen(name: str, defaults: ClusterDefaults) -> int:
    """The number of replicas that was set for the topic."""
    if name == GROUP_METADATA_TOPIC:
        return defaults.offsets_topic_replication_factor
    return defaults.transaction_state_log_replication_factor


def _takers(image: MetadataImage) -> dict[int, NodeRecord]:
    """The nodes that new replicas may go to."""
    return {node.node_id: node for node in uncordoned_nodes(image) if not node.fenced and not node.stopping}


def _further(
    nodes: Mapping[int, NodeRecord], takers: Iterable[NodeRecord], kept: Iterable[int], held: Counter[int]
) -> list[int]:
    """New replicas besides those that are `kept`: in racks that the partition is not in yet where there are such, then
    on the nodes that hold the fewest, which `held` counts."""
    chosen = list(kept)
    count = len(chosen)
    racks = {nodes[each].rack for each in chosen}
    free = [node for node in takers if node.node_id not in chosen]
    while free and len(chosen) < REPLICAS:
        best = min(free, key=lambda node: (node.rack in racks, held[node.node_id], node.node_id))
        free.remove(best)
        chosen.append(best.node_id)
        racks.add(best.rack)
    return chosen[count:]
