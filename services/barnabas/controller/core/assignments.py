"""Replicas that a user assigns by hand: what makes them valid, and the partitions they become."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import ReplicaAssignment
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage


def check_replication_factor(replication_factor: int) -> None:
    """Raise KafkaError INVALID_REPLICATION_FACTOR for what is none; whether there are nodes for it, placement says."""
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )


def manual_replicas(
    image: MetadataImage,
    assignments: Sequence[ReplicaAssignment],
    first_partition: int,
    replicas_each: int | None,
) -> list[list[int]]:
    """The assigned replicas of partitions `first_partition` and on, in order.

    `replicas_each` is the factor of partitions that are there already. Raises KafkaError INVALID_REPLICA_ASSIGNMENT.
    """
    by_partition: dict[int, list[int]] = {}
    for assignment in assignments:
        if assignment.partition in by_partition:
            raise _invalid(
                f"Found multiple manual partition assignments for partition {assignment.partition}"
            )
        node_ids = list(assignment.node_ids)
        _check_nodes(image, assignment.partition, node_ids)
        if replicas_each is not None and len(node_ids) != replicas_each:
            raise _invalid(
                f"The manual partition assignment includes a partition with {len(node_ids)} replica(s), but this "
                f"is not consistent with previous partitions, which have {replicas_each} replica(s)."
            )
        replicas_each = len(node_ids)
        by_partition[assignment.partition] = node_ids
    expected = range(first_partition, first_partition + len(assignments))
    if sorted(by_partition) != list(expected):
        raise _invalid(f"partitions should be consecutive integers from {first_partition} on")
    return [by_partition[index] for index in expected]


def _check_nodes(image: MetadataImage, partition: int, node_ids: list[int]) -> None:
    if not node_ids:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for node_id in node_ids:
        if node_id not in image.nodes:
            raise _invalid(
                f"The manual partition assignment includes broker {node_id}, but no such broker is registered."
            )
        if node_ids.count(node_id) > 1:
            raise _invalid(f"The manual partition assignment includes the broker {node_id} more than once.")
    if image.eligible_epochs.keys().isdisjoint(node_ids):
        raise _invalid(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )


def new_partitions(
    image: MetadataImage, topic_id: bytes, first_partition: int, replicas: Sequence[Sequence[int]]
) -> list[PartitionRecord]:
    """Fresh partitions with those replicas; those that may lead are in sync, and the first of them leads."""
    partitions = []
    for index, node_ids in enumerate(replicas, start=first_partition):
        in_sync = [node_id for node_id in node_ids if node_id in image.eligible_epochs]
        assert in_sync, "a partition is not created where no replica can lead"
        partitions.append(
            PartitionRecord(
                topic_id=topic_id, partition=index, leader=in_sync[0], replicas=node_ids, isr=in_sync
            )
        )
    return partitions


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)
