"""Whether others lead what is on a disk that takes no more records, and nobody starts the node again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from checks import image_of
from machines import Machine, NodeMachine
from virtual_disk import DiskHealth
from world import World

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage

LOOK_SECONDS: Final = 0.1

REFUSALS: Final = 4
APART_SECONDS: Final = 0.3
"""After so many refusals, so far apart, the node is to know that its disk is not just slow."""

MOVED_SECONDS_MAX: Final = 2.5
"""Within which others lead then."""


class LeadsOn:
    """Owner of what a node was seen to lead on its disk that refuses, and since when others could."""

    def __init__(
        self, world: World, node: NodeMachine, health: DiskHealth, nodes: Sequence[NodeMachine]
    ) -> None:
        self._world = world
        self._node = node
        self._health = health
        self._others = [each for each in nodes if each is not node]
        self._since: dict[tuple[bytes, int], float] = {}
        self._starts = 0

    def look(self) -> None:
        """For again and again, while the disk refuses."""
        if self._node.starts != self._starts:
            self._starts = self._node.starts
            self._health.refused_at.clear()  # a new process has to learn of it, too
        if self._refused() < REFUSALS:
            return
        led = {(each.topic_id, each.partition): each for each in self._led(image_of(self._world))}
        now = self._world.now
        self._since = {place: self._since.get(place, now) for place in led}
        for place, since in self._since.items():
            if now - since > MOVED_SECONDS_MAX:
                others = [each for each in led[place].isr if each != self._node.node_id]
                self._world.violate(
                    f"{self._node.name} leads partition {place[1]} although its disk refuses records, and "
                    f"{others} are in sync"
                )
                return

    def _refused(self) -> int:
        """How often, but for what came together."""
        count, last = 0, float("-inf")
        for at in self._health.refused_at:
            if at - last >= APART_SECONDS:
                count, last = count + 1, at
        return count

    def _led(self, image: MetadataImage) -> Iterator[PartitionRecord]:
        """What it leads on that disk, and others could."""
        for topic in image.topics.values():
            for partition in topic.partitions:
                is_led = partition.leader == self._node.node_id and self._is_there(partition)
                if is_led and any(_can_lead(each, partition, image) for each in self._others):
                    yield partition

    def _is_there(self, partition: PartitionRecord) -> bool:
        replicas = self._node.replicas
        replica = None if replicas is None else replicas.find(partition.topic_id, partition.partition)
        if replica is None or replica.log is None:
            return False
        return self._node.disk.health_of(replica.log.directory) is self._health


def _can_lead(node: Machine, partition: PartitionRecord, image: MetadataImage) -> bool:
    assert isinstance(node, NodeMachine), node.name
    known = image.nodes.get(node.node_id)
    is_well = node.life is not None and not node.life.is_paused and not node.is_stopping
    return (
        is_well
        and known is not None
        and not known.fenced
        and not known.stopping
        and node.node_id in partition.isr
    )
