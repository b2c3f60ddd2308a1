"""Who leads a partition, and what its record becomes, after nodes came or went.

Only in-sync replicas lead, unless `unclean.leader.election.enable` says otherwise. The last in-sync replica stays in
the list when it goes, for it alone has all records; the partition then has no leader until it is back.

`eligible` are the nodes that may come to lead and be in sync (`MetadataImage.eligible_epochs`). One that is stopping is
none of them, but goes on to lead what nobody else can.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.partition_change import ElectionTerms
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.effective import effective_topic_setting
from barnabas.metadata.image import NO_LEADER, MetadataImage

IsUnclean = Callable[[], bool]
"""Whether a replica out of sync may lead the partition where no other can."""

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
MIN_IN_SYNC: Final = "min.insync.replicas"


def never() -> bool:
    """Only who is in sync may lead."""
    return False


def after_node_left(
    partition: PartitionRecord, node_id: int, eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord | None:
    """The partition without `node_id`, or None when nothing changes. `eligible` are those that remain."""
    if node_id not in partition.isr and partition.leader != node_id:
        return None
    isr = [replica for replica in partition.isr if replica != node_id] or [node_id]
    if partition.leader != node_id:
        return changed_partition(partition, partition.leader, isr)
    return elected(partition, isr, eligible, is_unclean)


def after_node_came(
    partition: PartitionRecord, eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord | None:
    """The partition with a leader, if it had none and there is a candidate; else None."""
    if partition.leader != NO_LEADER:
        return None
    return elected(partition, list(partition.isr), eligible, is_unclean)


def after_node_restarted(
    partition: PartitionRecord, node_id: int, eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord | None:
    """The node is a new process, which may have lost what the old one had: it is in sync only where nobody else is
    (KIP-903). Where it leads on, the leader epoch tells the processes apart.
    """
    isr = [replica for replica in partition.isr if replica != node_id] or list(partition.isr)
    if partition.leader == NO_LEADER:
        return elected(partition, isr, eligible, is_unclean)
    if partition.leader != node_id:
        return changed_partition(partition, partition.leader, isr)
    if node_id in isr:
        return changed_partition(partition, node_id, isr, always_new_leader_epoch=True)
    return elected(partition, isr, eligible, is_unclean)


def after_hand_over(
    partition: PartitionRecord, node_id: int, eligible: Container[int]
) -> PartitionRecord | None:
    """The partition without `node_id`, which is about to stop, where another replica is in sync and stays; else None.

    Where it is the only one, it goes on leading until it is gone: nothing unclean happens because of a restart.
    """
    others = [replica for replica in partition.isr if replica != node_id]
    if node_id not in partition.isr or not any(replica in eligible for replica in others):
        return None
    if partition.leader != node_id:
        return changed_partition(partition, partition.leader, others)
    return elected(partition, others, eligible, never)


def elected(
    partition: PartitionRecord, isr: Sequence[int], eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord | None:
    """The partition with these in-sync replicas: led by who leads it now, if that is a candidate, by the first one in
    the order of its replicas, or by nobody.
    """
    candidates = [replica for replica in partition.replicas if replica in isr and replica in eligible]
    if partition.leader in candidates:
        return changed_partition(partition, partition.leader, isr)
    if candidates:
        return changed_partition(partition, candidates[0], isr)
    return (
        unclean_elected(partition, eligible) if is_unclean() else changed_partition(partition, NO_LEADER, isr)
    )


def unclean_elected(partition: PartitionRecord, eligible: Container[int]) -> PartitionRecord | None:
    """The partition led by the first of its replicas that is there, whatever records it lacks; it alone is in sync."""
    for replica in partition.replicas:
        if replica in eligible:
            return changed_partition(partition, replica, [replica])
    return changed_partition(partition, NO_LEADER, list(partition.isr))


def elections(
    image: MetadataImage, decide: Callable[[PartitionRecord, IsUnclean], PartitionRecord | None]
) -> list[MetadataRecord]:
    """What `decide` changes among all visible partitions."""
    changed = []
    for topic in image.topics.values():
        is_unclean = unclean_by_settings(image, topic.name)
        for partition in topic.partitions:
            after = decide(partition, is_unclean)
            if after is not None:
                changed.append(partition_entry(after))
    return changed


def unclean_by_settings(image: MetadataImage, topic: str) -> IsUnclean:
    """Looked up where it is asked for: most partitions have somebody in sync."""
    return lambda: bool(effective_topic_setting(image, topic, UNCLEAN_ELECTION).value)


def terms_of(image: MetadataImage, topic: str, eligible: Container[int] | None = None) -> ElectionTerms:
    """What changes of the topic's partitions go by; the nodes are those of the image, unless `eligible` are given."""
    nodes = image.eligible_epochs if eligible is None else eligible
    return ElectionTerms(nodes, lambda: _min_in_sync(image, topic), unclean_by_settings(image, topic))


def _min_in_sync(image: MetadataImage, topic: str) -> int:
    value = effective_topic_setting(image, topic, MIN_IN_SYNC).value
    assert isinstance(value, int)
    return value


def changed_partition(
    partition: PartitionRecord, leader: int, isr: Sequence[int], *, always_new_leader_epoch: bool = False
) -> PartitionRecord | None:
    """The partition with this leader and ISR, under new epochs; None when that is what it has."""
    is_new_leader = leader != partition.leader or always_new_leader_epoch
    if not is_new_leader and set(isr) == set(partition.isr):
        return None
    changed = PartitionRecord()
    changed.CopyFrom(partition)
    changed.leader_epoch += is_new_leader
    changed.leader = leader
    changed.isr[:] = isr
    changed.partition_epoch += 1
    return changed
