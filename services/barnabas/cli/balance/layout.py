"""Replicas on nodes while a plan is made: who holds and leads how much, and which changes keep racks apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.cli.balance.cluster_state import NO_LEADER, ClusterState, Reassignment

REPLICA_COST_BYTES: Final = 1024 * 1024
"""What a replica weighs beside its bytes: an empty one will get records too, and has files and fetches of its own. So
nodes with little data come to have as many replicas, and those with much as many bytes."""


@dataclass(slots=True)
class Placed:
    """A partition that may be moved."""

    topic: str
    number: int
    replicas: list[int]
    size_bytes: int

    @property
    def weight(self) -> int:
        return self.size_bytes + REPLICA_COST_BYTES


class Layout:
    """Owns where the replicas are in a plan. `takers` may get and give replicas; others' stay where they are."""

    def __init__(self, state: ClusterState) -> None:
        self.racks = {node.node_id: node.rack for node in state.nodes}
        self.takers = sorted(node.node_id for node in state.nodes if node.takes_replicas)
        self.room = {node.node_id: node.usable_bytes for node in state.nodes if node.takes_replicas}
        """Bytes that a node can still be given; None where it is not known."""
        self.loads = dict.fromkeys(self.takers, 0)
        self.leaders: Counter[int] = Counter(dict.fromkeys(self.takers, 0))
        self.partitions: list[Placed] = []
        """Those that may be moved. What is being reassigned is left alone, and counts as if that were done; so is what
        nobody leads, for there is nobody to copy it from."""
        for partition in sorted(state.partitions, key=lambda each: each.place):
            target = list(partition.target)
            placed = Placed(partition.topic, partition.number, target, partition.size_bytes)
            self._count(target, placed.weight)
            if target and not partition.is_being_reassigned and partition.leader != NO_LEADER:
                self.partitions.append(placed)
        self._before = [tuple(placed.replicas) for placed in self.partitions]

    def _count(self, replicas: Sequence[int], weight: int) -> None:
        for replica in replicas:
            if replica in self.loads:
                self.loads[replica] += weight
        if replicas and replicas[0] in self.loads:
            self.leaders[replicas[0]] += 1

    def mean_load(self, nodes: Sequence[int]) -> float:
        return sum(self.loads[node] for node in nodes) / len(nodes)

    def rack_count(self, replicas: Iterable[int]) -> int:
        return len({self.racks.get(replica, "") for replica in replicas})

    def may_replace(self, placed: Placed, old: int, new: int) -> bool:
        """Whether `new` can have the replica of `old`: it has none, has room, and as many racks have one as before."""
        if new in placed.replicas or not self.has_room(new, placed.size_bytes):
            return False
        rack = self.racks[new]
        if rack == self.racks.get(old, ""):
            return True
        others = {self.racks.get(replica, "") for replica in placed.replicas if replica != old}
        return rack not in others or self.racks.get(old, "") in others

    def replace(self, placed: Placed, old: int, new: int) -> None:
        """`new` gets the replica of `old`, and its place in their order."""
        at = placed.replicas.index(old)
        placed.replicas[at] = new
        if old in self.loads:
            self.loads[old] -= placed.weight
        self.loads[new] += placed.weight
        self._take_room(new, placed.size_bytes)
        if at == 0:
            self.leaders[new] += 1
            if old in self.loads:
                self.leaders[old] -= 1

    def best_receiver(self, staying: Sequence[int], nodes: Iterable[int]) -> int:
        """Which of `nodes` keeps racks apart best beside the replicas that stay, and has least to hold, or to lead."""

        def rank(node: int) -> tuple[int, int, int, int]:
            return -self.rack_count([*staying, node]), self.loads[node], self.leaders[node], node

        return min(nodes, key=rank)

    def add(self, placed: Placed, new: int) -> None:
        """`new` gets a replica, the last in their order."""
        placed.replicas.append(new)
        self.loads[new] += placed.weight
        self._take_room(new, placed.size_bytes)

    def remove(self, placed: Placed, old: int) -> None:
        """`old` loses its replica; where it was preferred to lead, the next one is."""
        at = placed.replicas.index(old)
        placed.replicas.remove(old)
        for node, change in ((old, -1), (placed.replicas[0], 1)) if at == 0 else ():
            if node in self.loads:
                self.leaders[node] += change
        if old in self.loads:
            self.loads[old] -= placed.weight

    def prefer(self, placed: Placed, leader: int) -> None:
        """`leader`, which has a replica, is to lead: it changes places with the first."""
        at = placed.replicas.index(leader)
        first = placed.replicas[0]
        placed.replicas[0], placed.replicas[at] = leader, first
        self.leaders[leader] += 1
        if first in self.loads:
            self.leaders[first] -= 1

    def reassignments(self) -> tuple[Reassignment, ...]:
        """What is to be changed, in the order of the partitions."""
        return tuple(
            Reassignment(placed.topic, placed.number, before, tuple(placed.replicas), placed.size_bytes)
            for before, placed in zip(self._before, self.partitions, strict=True)
            if before != tuple(placed.replicas)
        )

    def has_room(self, node_id: int, size_bytes: int) -> bool:
        room = self.room[node_id]
        return room is None or room >= size_bytes

    def _take_room(self, node_id: int, size_bytes: int) -> None:
        known = self.room[node_id]
        if known is not None:
            self.room[node_id] = known - size_bytes
