"""Which coordinator owns a group or a transactional id: whoever its partition of an internal topic was given to."""

from __future__ import annotations

from barnabas.messages.metadata_pb2 import CoordinatorRecord, PartitionRecord
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import MetadataImage


def owning_partition(image: MetadataImage, topic: str, key: str) -> PartitionRecord | None:
    """The partition of the internal `topic` that `key`, a group's id or a transactional id, belongs to; None while the
    topic does not exist."""
    known = image.topics.get(topic)
    if known is None or not known.partitions:
        return None
    return known.partitions[partition_for_group(key, len(known.partitions))]


def coordinator_of(image: MetadataImage, topic: str, key: str) -> CoordinatorRecord | None:
    """The coordinator that `key` belongs to; None while the topic does not exist or nobody owns the partition."""
    record = owning_partition(image, topic, key)
    return None if record is None else image.coordinators.get(record.coordinator_id)
