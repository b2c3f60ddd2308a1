"""Whether what is promised outlives it when one node's records are lost: others have them, as the metadata say.

That is what several replicas are for, and no more: before the controller knows that a node may lack what it had, the
last that has a record is not to go as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checks import image_of
from machines import Machine, NodeMachine
from world import World

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage


class Copies:
    """Owner of which node lacks records that it once had."""

    def __init__(self, world: World, nodes: Sequence[NodeMachine]) -> None:
        self._world = world
        self._nodes = nodes
        self._lacking: NodeMachine | None = None
        self._rotten: NodeMachine | None = None
        """Who has records that nobody can read: meanwhile no other node ends or loses anything."""
        self._lost_under_epoch = -1

    def may_lose(self, machine: Machine) -> bool:
        """Whether `machine` may lose what it has: none lacks anything, and of each partition somebody else has all."""
        self._look()
        if self._rotten not in (None, machine):
            return False
        return self._lacking is None and self.is_registered(machine) and self._stays_without(machine)

    def on_lost(self, machine: Machine) -> None:
        """It has lost what it had, whole or in part."""
        assert isinstance(machine, NodeMachine), machine.name
        machine.is_rotten = False
        self._lacking, self._rotten = machine, None
        self._lost_under_epoch = image_of(self._world).nodes[machine.node_id].node_epoch

    @property
    def are_all_sound(self) -> bool:
        """Whether nobody has records that cannot be read."""
        return self._rotten is None

    @property
    def are_whole(self) -> bool:
        """Whether nobody lacks anything, or has what cannot be read."""
        self._look()
        return self._lacking is None and self._rotten is None

    def on_rotten(self, machine: Machine) -> None:
        """What it has can no longer be read in one place; it has to go in the end."""
        assert isinstance(machine, NodeMachine), machine.name
        machine.is_rotten, self._rotten = True, machine

    def on_drained(self, machine: Machine) -> None:
        """Others have all that it had, and it is gone from the cluster."""
        if self._rotten is not None and self._rotten is machine:
            self._rotten.is_rotten = False
            self._rotten = None

    def is_registered(self, machine: Machine) -> bool:
        """Whether it is a node of the cluster, up or not: one that was drained is none."""
        return isinstance(machine, NodeMachine) and machine.node_id in image_of(self._world).nodes

    def may_end(self, machine: Machine) -> bool:
        """Whether the process of `machine` may end: until the controller knows of the end of the process that had the
        records which are lacking, a third one has to stay; and later whoever is to lead again what that one led.
        """
        self._look()
        if self._rotten is not None and isinstance(machine, NodeMachine):
            return machine is self._rotten and self._stays_without(machine)
        lacking = self._lacking
        if lacking is None or lacking is machine or not isinstance(machine, NodeMachine):
            return True
        if self._is_known_to_be_gone(lacking):
            return all(
                partition.leader != NO_LEADER or self._has_another(partition, machine)
                for partition in _partitions(image_of(self._world))
                if _is_trusted(machine, partition)
            )
        return self._stays_without(machine, lacking)

    def _look(self) -> None:
        """Whoever lacked records does so no longer once its new process is in sync everywhere."""
        node = self._lacking
        if node is None:
            return
        partitions = _partitions(image_of(self._world))
        if self._has_registered(node) and all(
            node.node_id in partition.isr or node.node_id not in partition.replicas
            for partition in partitions
        ):
            self._lacking = None

    def _has_registered(self, lacking: NodeMachine) -> bool:
        known = image_of(self._world).nodes.get(lacking.node_id)
        return known is not None and known.node_epoch > self._lost_under_epoch

    def _is_known_to_be_gone(self, lacking: NodeMachine) -> bool:
        partitions = _partitions(image_of(self._world))
        return self._has_registered(lacking) or all(lacking.node_id not in each.isr for each in partitions)

    def _stays_without(self, *gone: Machine) -> bool:
        partitions = _partitions(image_of(self._world))
        return all(self._has_another(partition, *gone) for partition in partitions)

    def _has_another(self, partition: PartitionRecord, *gone: Machine) -> bool:
        """One that has stopped has it, too, where the controller trusts none of those instead that are `gone`: by the
        time that it is back, it may have been given up, and the last that was not is one of them.
        """
        is_trusted = any(isinstance(each, NodeMachine) and each.node_id in partition.isr for each in gone)
        return any(
            _has(node, partition)
            and (node.is_up or not is_trusted or node.node_id in partition.eligible_leader_replicas)
            for node in self._nodes
            if node not in gone
        )


def with_a_readable_one(chosen: Sequence[int], nodes: Sequence[NodeMachine]) -> tuple[int, ...]:
    """The nodes `chosen` for a partition's replicas, and another one where nobody could read what these have."""
    rotten = {each.node_id for each in nodes if each.is_rotten}
    if not rotten.issuperset(chosen):
        return tuple(chosen)
    others = [each.node_id for each in nodes if not each.is_away and each.node_id not in rotten]
    return (*chosen, *others[:1])


def _partitions(image: MetadataImage) -> Iterator[PartitionRecord]:
    return (partition for topic in image.topics.values() for partition in topic.partitions)


def _is_trusted(node: NodeMachine, partition: PartitionRecord) -> bool:
    return node.node_id in (*partition.isr, *partition.eligible_leader_replicas)


def _has(node: NodeMachine, partition: PartitionRecord) -> bool:
    """Whether the node has all that is committed, and will say so: its process knows it, or knew it when it ended in
    order. One that never heard of the metadata may have begun after a kill that no controller knows of yet, one
    that is stopping hands over to whoever is in sync as far as the controller knows, and so does one that gives up a
    directory whose disk refuses what is written; one that the controller does not hear is out of sync in the end.
    """
    if not _is_trusted(node, partition) or not all(health.is_well for health in node.disk.healths):
        return False
    if not node.hears_controllers:
        return False
    if node.replicas is not None and not node.is_stopping:
        image = node.replicas.image
    elif node.has_stopped_in_order and node.knew is not None:
        image = node.knew
    else:
        return False
    known = image.partition(partition.topic_id, partition.partition)
    return known is not None and node.node_id in (*known.isr, *known.eligible_leader_replicas)
