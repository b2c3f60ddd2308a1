"""Who leads a partition after a node came or went.

Only in-sync replicas lead. The last in-sync replica stays in the list when it goes, for it alone has all records;
the partition then has no leader until it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from barnabas.controller.core.decision import partition_entry
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage


def after_node_left(
    partition: PartitionRecord, node_id: int, live: Collection[int]
) -> PartitionRecord | None:
    """The partition without `node_id`, or None when nothing changes. `live` are the nodes that remain."""
    if node_id not in partition.isr and partition.leader != node_id:
        return None
    isr = [replica for replica in partition.isr if replica != node_id] or [node_id]
    leader = partition.leader
    if leader == node_id:
        candidates = (replica for replica in partition.replicas if replica in isr and replica in live)
        leader = next(candidates, NO_LEADER)
    if leader == partition.leader and isr == list(partition.isr):
        return None
    return _changed(partition, leader, isr)


def after_node_came(partition: PartitionRecord, node_id: int) -> PartitionRecord | None:
    """The partition led by `node_id` when it had no leader and the node was in sync; else None."""
    if partition.leader != NO_LEADER or node_id not in partition.isr:
        return None
    return _changed(partition, node_id, list(partition.isr))


def after_node_restarted(
    partition: PartitionRecord, node_id: int, live: Collection[int]
) -> PartitionRecord | None:
    """The node is a new process: as if it had left and come back, told in one change of epoch."""
    left = after_node_left(partition, node_id, live)
    if left is None and partition.leader != NO_LEADER:
        return None
    came = after_node_came(left or partition, node_id)
    if came is not None:
        return _changed(partition, node_id, list(came.isr), always_new_leader_epoch=True)
    return left


def elections(
    image: MetadataImage, decide: Callable[[PartitionRecord], PartitionRecord | None]
) -> list[MetadataRecord]:
    """What `decide` changes among all visible partitions."""
    changed = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            after = decide(partition)
            if after is not None:
                changed.append(partition_entry(after))
    return changed


def _changed(
    partition: PartitionRecord, leader: int, isr: Sequence[int], *, always_new_leader_epoch: bool = False
) -> PartitionRecord:
    changed = PartitionRecord()
    changed.CopyFrom(partition)
    if leader != partition.leader or always_new_leader_epoch:
        changed.leader_epoch += 1
    changed.leader = leader
    changed.isr[:] = isr
    changed.partition_epoch += 1
    return changed
