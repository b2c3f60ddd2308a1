"""Who is told of a transaction's end for a partition, by the metadata of the moment.

A transaction knows its partitions by the topics' names. A topic that was deleted and made anew under its name is told
like any other, since it may have records of the transaction, too; of the former one nothing is left to tell. That a
partition is gone is known from the metadata's word that a topic of the name was deleted, never from its absence alone.
The present absence is no older than that word: the coordinator takes a partition into a transaction only where its own
metadata have it (`handlers/add_partitions_to_txn`), metadata go forward, and whoever owns the transaction later has
newer ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage


class Place(NamedTuple):
    """A process that is told."""

    is_coordinator: bool
    """Whether it owns a partition of __consumer_offsets; else it is a storage node that leads."""
    id: str
    address: str


class NoPlace(enum.Enum):
    """Why nobody can be told now."""

    GONE = "gone"
    """The partition was deleted, and there is nothing to tell any more."""
    UNKNOWN = "unknown"
    """The metadata do not have the partition, and do not say why."""
    NOBODY = "nobody"
    """It has no leader or no owner, or not one that can be reached."""


class Places:
    """Finds places in the newest metadata; owns nothing but the names of deleted topics, found when they are needed."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._named_in: MetadataImage | None = None
        self._deleted_names: frozenset[str] = frozenset()

    def find(self, partition: TopicPartition) -> Place | NoPlace:
        """Who is told for `partition`."""
        image = self._image()
        name, index = partition
        if name == TRANSACTION_STATE_TOPIC:
            return NoPlace.UNKNOWN  # never part of a transaction
        topic = image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return NoPlace.GONE if self._was_deleted(image, name) else NoPlace.UNKNOWN
        record = topic.partitions[index]
        if name == GROUP_METADATA_TOPIC:
            owner = image.coordinators.get(record.coordinator_id)
            return NoPlace.NOBODY if owner is None else Place(True, owner.coordinator_id, owner.address)
        node = image.nodes.get(record.leader)
        if node is None or node.fenced:
            return NoPlace.NOBODY
        return Place(False, str(node.node_id), node.address)

    def _was_deleted(self, image: MetadataImage, name: str) -> bool:
        if self._named_in is not image:
            self._named_in = image
            self._deleted_names = frozenset(said.name for said in image.deleted_topics.values())
        return name in self._deleted_names
