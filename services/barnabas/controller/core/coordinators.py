"""Coordinators come and go, and the partitions of internal topics follow them.

Every change of owner raises the partition's coordinator epoch, and leaves its leader epoch alone: a handover is no
election. Appends carry the coordinator epoch that they were decided under, and the partition's leader refuses any
other: that is the fence against a coordinator that lives on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.controller.core.coordinator_assignment import assign_owners, candidates
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import CoordinatorRecord, MetadataRecord, PartitionRecord
from barnabas.metadata.image import MetadataImage, coordinator_key


def register_coordinator(
    image: MetadataImage, coordinator: CoordinatorRecord, absent: Collection[str] = ()
) -> Decision[None]:
    """A coordinator came, came back, or came back as a new process. Of the others those that are `absent`, which may be
    frozen or dead, are given nothing more.

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
    live = {**image.coordinators, coordinator.coordinator_id: coordinator}
    others_absent = set(absent) - {coordinator.coordinator_id}
    records += _reassigned(image, live, restarted, absent=others_absent)
    return Decision(tuple(records), None)


def remove_coordinator(
    image: MetadataImage, coordinator_id: str, heirs: Collection[str] | None = None
) -> Decision[None]:
    """A coordinator is gone, or about to go: its registration goes, and the `heirs` (None: all others) share what it
    owned. Others keep what they have. Nothing changes where the heirs are nobody.
    """
    others = set(image.coordinators) - {coordinator_id}
    if coordinator_id not in image.coordinators or (heirs is not None and not heirs):
        return Decision((), None)
    live = {
        name: coordinator
        for name, coordinator in image.coordinators.items()
        if name in (others if heirs is None else heirs)
    }
    records = [MetadataRecord(key=coordinator_key(coordinator_id))]
    records += _reassigned(image, live, kept=others.difference(live))
    return Decision(tuple(records), None)


def _reassigned(
    image: MetadataImage,
    live: Mapping[str, CoordinatorRecord],
    restarted: Collection[str] = (),
    *,
    absent: Collection[str] = (),
    kept: Collection[str] = (),
) -> list[MetadataRecord]:
    """The partitions that get another owner among the `live` ones, or one that has `restarted`. Those who are `absent`
    get nothing more, and what those who are `kept` own stays out of it.
    """
    records = []
    for topic in image.topics.values():
        if not topic.internal:
            continue
        shared = [partition for partition in topic.partitions if partition.coordinator_id not in kept]
        owners = assign_owners(candidates(image, shared, live), live, absent)
        for partition, owner in zip(shared, owners, strict=True):
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
