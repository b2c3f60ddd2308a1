"""How many replicas must be in sync for anything to be committed, and what a change of that number means (KIP-966).

Who is eligible to lead was found by the number of that time, and its leader commits nothing meanwhile. When the number
changes, nobody is taken for eligible by the old one any more. A partition that nobody leads keeps those that it has:
nothing can be committed without them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from barnabas.controller.core.decision import partition_entry
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import NO_LEADER, MetadataImage, partition_key

MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class MinInSync:
    """The min.insync.replicas of each topic by one image: its own, or else the smallest that any node goes by.

    Brokers may have values of their own, in their files or dynamic ones, and any of them may come to lead: none commits
    with fewer in sync than the smallest.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def of(self, topic: str) -> int:
        """That of a partition that has as many replicas."""
        own = self.own(topic)
        return self.otherwise if own is None else own

    def own(self, topic: str) -> int | None:
        """The topic's own number, which every leader takes before any other."""
        text = self._image.configs.get((TOPIC_RESOURCE, topic), _NOTHING).get(MIN_IN_SYNC_REPLICAS)
        return None if text is None else int(text)

    @cached_property
    def otherwise(self) -> int:
        """That of topics that have no number of their own."""
        nodes: Iterable[int | None] = self._image.nodes or (None,)
        return min(_of_broker(self._image, node_id) for node_id in nodes)


def _of_broker(image: MetadataImage, node_id: int | None) -> int:
    value = effective_broker_setting(image, MIN_IN_SYNC_REPLICAS, node_id=node_id).value
    assert isinstance(value, int), "it has a default"
    return value


def with_eligible_by_new_number(
    image: MetadataImage, records: Sequence[MetadataRecord]
) -> tuple[MetadataRecord, ...]:
    """The records of a decision, and with them the partitions whose topics have another min.insync.replicas once they
    are stored, and that had anybody eligible by the old one.
    """
    if not records:
        return ()
    after = image.apply(records, image.revision + 1)
    by_old, by_new = MinInSync(image), MinInSync(after)
    decided = {record.key: record for record in records}
    for name in _concerned(after, is_everywhere=by_old.otherwise != by_new.otherwise):
        if by_old.of(name) == by_new.of(name):
            continue
        for partition in after.topics[name].partitions:
            if partition.eligible_leader_replicas and partition.leader != NO_LEADER:
                key = partition_key(partition.topic_id, partition.partition)
                decided[key] = _with_nobody_eligible(partition, is_changed=key in decided)
    return tuple(decided.values())


def _concerned(after: MetadataImage, *, is_everywhere: bool) -> Iterable[str]:
    """The topics that may have another number: of most changes only those whose own settings changed."""
    if is_everywhere or after.changes is None:
        return after.topics
    changed = (name for resource_type, name in after.changes.configs if resource_type == TOPIC_RESOURCE)
    return [name for name in changed if name in after.topics]


def _with_nobody_eligible(partition: PartitionRecord, *, is_changed: bool) -> MetadataRecord:
    """The partition's record; if it `is_changed` by the same decision, the partition epoch has risen for that."""
    changed = PartitionRecord()
    changed.CopyFrom(partition)
    del changed.eligible_leader_replicas[:]
    changed.partition_epoch += not is_changed
    return partition_entry(changed)
