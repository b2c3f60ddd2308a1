"""The topics that groups can subscribe to, as the metadata have them now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Final

from barnabas.metadata.image import MetadataImage, TopicImage

_HASH_BYTES: Final = 8
_NO_TOPICS: Final = 0


class Topics:
    """Owns which image of the metadata counts for assignments, and what was computed of its topics.

    One for all partitions of a coordinator: they read, and the coordinator gives it each new image.
    """

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.version_of_newest = 0
        """The revision of the image in which a topic was created last."""
        self._hashes: dict[str, int] = {}

    def get(self, name: str) -> TopicImage | None:
        """The topic of that name, if there is one."""
        return self.image.topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id, if there is one."""
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """The ids of those of the topics that exist."""
        found = (self.image.topics.get(name) for name in names)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def partition_count(self, topic_id: bytes) -> int:
        """How many partitions the topic has; 0 when there is no such topic."""
        topic = self.image.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: Iterable[str]) -> int:
        """A number that is another one when what assignments rest on has changed: which of the topics there are, how
        many partitions they have, and in which racks these are. Signed, of 64 bits; 0 when none of them exists
        (KIP-1101).

        Kafka takes xxh3 over the same facts. Nobody compares the numbers of two coordinators but to find them
        different.
        """
        known = sorted(name for name in names if name in self.image.topics)
        if not known:
            return _NO_TOPICS
        digest = blake2b(digest_size=_HASH_BYTES)
        for name in known:
            digest.update(self._hash_of_topic(name).to_bytes(_HASH_BYTES, "big", signed=True))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def on_image(self, new: MetadataImage) -> Collection[str] | None:
        """`new` counts from now on. Returns the names of the topics that came, went, grew or moved; None when it may be
        any of them."""
        old, self.image = self.image, new
        changes = new.changes_since(old)
        if changes is None or (new.nodes is not old.nodes and _racks(old) != _racks(new)):
            self._hashes.clear()
            self.version_of_newest = new.revision
            return None
        changed: dict[str, None] = {}
        for topic_id in changes.topics:
            before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
            if before is None:
                self.version_of_newest = new.revision
            changed.update((topic.name, None) for topic in (before, after) if topic is not None)
        for topic_id, index in changes.partitions:
            topic = new.topics_by_id.get(topic_id)
            if topic is not None and topic.name not in changed and _has_moved(old, new, topic_id, index):
                changed[topic.name] = None
        for name in changed:
            self._hashes.pop(name, None)
        return changed

    def _hash_of_topic(self, name: str) -> int:
        known = self._hashes.get(name)
        if known is None:
            known = self._hashes[name] = _hash_topic(self.image, self.image.topics[name])
        return known


def _hash_topic(image: MetadataImage, topic: TopicImage) -> int:
    digest = blake2b(topic.topic_id, digest_size=_HASH_BYTES)
    digest.update(topic.name.encode())
    racks = {node_id: node.rack for node_id, node in image.nodes.items() if node.rack}
    for record in topic.partitions:
        there = sorted(racks[node_id] for node_id in record.replicas if node_id in racks)
        digest.update(f"\n{record.partition} {there}".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def _racks(image: MetadataImage) -> list[tuple[int, str]]:
    return sorted((node_id, node.rack) for node_id, node in image.nodes.items())


def _has_moved(old: MetadataImage, new: MetadataImage, topic_id: bytes, index: int) -> bool:
    """Whether the partition has other replicas: who leads and who is in sync are nothing to assignments."""
    before, after = old.partition(topic_id, index), new.partition(topic_id, index)
    return before is None or after is None or before.replicas != after.replicas
