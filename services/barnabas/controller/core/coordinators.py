"""Coordinators come and go, and the partitions of internal topics follow them.

Every change of owner raises the partition's coordinator epoch, and leaves its leader epoch alone: a handover is no
election. Appends carry the coordinator epoch that they were decided under, and the partition's leader refuses any
other: that is the fence against a coordinator that lives on.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.controller.core.coordinator_assignment import assign_owners
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import CoordinatorRecord, MetadataRecord, PartitionRecord
from barnabas.metadata.image import MetadataImage, coordinator_key


def register_coordinator(image: MetadataImage, coordinator: CoordinatorRecord) -> Decision[None]:
    """A coordinator came, came back, or came back as a new process.

    A new process has loaded nothing, so the coordinator epochs of what its predecessor owned rise too. Raises
    KafkaError INVALID_REGISTRATION.
    """
    if not coordinator.coordinator_id or not coordinator.incarnation_id or not coordinator.address:
        raise KafkaError(
            ErrorCode.invalid_registration, "a coordinator needs an id, an incarnation id and an address"
        )
    known = image.coordinators.get(coordinator.coordinator_id)
    restarted = set()
    if known is not None and known.incarnation_id != coordinator.incarnation_id:
        restarted.add(coordinator.coordinator_id)
    records = []
    if known != coordinator:
        key = coordinator_key(coordinator.coordinator_id)
        records.append(MetadataRecord(key=key, coordinator=coordinator))
    live = {*image.coordinators, coordinator.coordinator_id}
    records += _reassigned(image, live, restarted)
    return Decision(tuple(records), None)


def remove_coordinator(image: MetadataImage, coordinator_id: str) -> Decision[None]:
    """A coordinator is gone; the others share what it owned."""
    if coordinator_id not in image.coordinators:
        return Decision((), None)
    records = [MetadataRecord(key=coordinator_key(coordinator_id))]
    records += _reassigned(image, set(image.coordinators) - {coordinator_id}, set())
    return Decision(tuple(records), None)


def hand_over_coordinator(
    image: MetadataImage, coordinator_id: str, present: Collection[str]
) -> Decision[None]:
    """A coordinator is about to stop, or its process has ended: those that are `present` share what it owned. Others
    keep what they have, for now, and get nothing more. Nothing changes where nobody is present.
    """
    if coordinator_id not in image.coordinators or not present:
        return Decision((), None)
    records = [MetadataRecord(key=coordinator_key(coordinator_id))]
    for topic in image.topics.values():
        if not topic.internal:
            continue
        shared = [each for each in topic.partitions if each.coordinator_id in {coordinator_id, *present}]
        owners = assign_owners([each.coordinator_id for each in shared], present)
        records += [
            partition_entry(_handed_over(partition, owner))
            for partition, owner in zip(shared, owners, strict=True)
            if owner != partition.coordinator_id
        ]
    return Decision(tuple(records), None)


def _reassigned(image: MetadataImage, live: Collection[str], restarted: set[str]) -> list[MetadataRecord]:
    records = []
    for topic in image.topics.values():
        if not topic.internal:
            continue
        before = [partition.coordinator_id for partition in topic.partitions]
        for partition, owner in zip(topic.partitions, assign_owners(before, live), strict=True):
            if owner != partition.coordinator_id or owner in restarted:
                records.append(partition_entry(_handed_over(partition, owner)))
    return records


def _handed_over(partition: PartitionRecord, owner: str) -> PartitionRecord:
    changed = PartitionRecord()
    changed.CopyFrom(partition)
    changed.coordinator_id = owner
    changed.coordinator_epoch += 1
    changed.partition_epoch += 1
    return changed
