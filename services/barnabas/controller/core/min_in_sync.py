"""What a change of a topic's min.insync.replicas means for who is eligible to lead (KIP-966).

Who is eligible was found by the number of that time. When it changes, nobody is taken for eligible by the old one any
more. A partition that nobody leads keeps those that it has: nothing can be committed without them meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from barnabas.controller.core.decision import partition_entry
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage

MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def min_in_sync_replicas(image: MetadataImage, topic: str) -> int:
    """How many replicas must be in sync for anything to be committed, in a partition that has as many.

    It is the topic's own number, which every leader takes before any other. Without one it is 1, which is never more
    than what a leader reckons with: brokers may have values of their own, and not each the same.
    """
    return int(image.configs.get((TOPIC_RESOURCE, topic), _NOTHING).get(MIN_IN_SYNC_REPLICAS, "1"))


def no_more_eligible(image: MetadataImage, configs: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """The partitions whose topics have another min.insync.replicas once `configs` are stored, and that had anybody
    eligible by the old one.
    """
    after = image.apply(configs, image.revision + 1) if configs else image
    cleared = []
    for resource_type, name in after.changes.configs if after.changes is not None and configs else ():
        if resource_type != TOPIC_RESOURCE:
            continue
        if min_in_sync_replicas(image, name) == min_in_sync_replicas(after, name):
            continue
        for partition in image.topics[name].partitions:
            if partition.eligible_leader_replicas and partition.leader != NO_LEADER:
                changed = PartitionRecord()
                changed.CopyFrom(partition)
                del changed.eligible_leader_replicas[:]
                changed.partition_epoch += 1
                cleared.append(partition_entry(changed))
    return cleared
