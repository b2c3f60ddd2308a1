"""Which replicas partitions get, or lose, that are to have so many of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from barnabas.cli.balance.cluster_state import NO_LEADER, ClusterState, Partition, Reassignment
from barnabas.cli.balance.draining import reassignment_under_way
from barnabas.cli.balance.layout import Layout, Placed


@dataclass(frozen=True, slots=True)
class FactorPlan:
    """What is to be reassigned, and what cannot be."""

    reassignments: tuple[Reassignment, ...]
    under_way: tuple[Reassignment, ...] = ()
    """What is being reassigned, by an earlier run or by somebody else. Their turn comes when that is done."""
    too_few_nodes: tuple[str, ...] = ()
    """Partitions that would need more nodes than take replicas."""
    no_room: tuple[str, ...] = ()
    """Partitions that no further node has room for."""
    leaderless: tuple[str, ...] = ()
    """Partitions that nobody leads: there is nobody to copy them from."""

    @property
    def bytes_moved(self) -> int:
        return sum(reassignment.bytes_moved for reassignment in self.reassignments)


def plan_replication_factor(state: ClusterState, topics: Collection[str], factor: int) -> FactorPlan:
    """Every partition of `topics` comes to have `factor` replicas; those that it has already and keeps stay in order.

    New ones go to racks that it is not in, there to the emptiest node. Of those to go the first is whose node is away,
    then who is out of sync, then who shares a rack with another one, then who is on the fullest node; who is preferred
    to lead stays as long as somebody else can go.
    """
    layout = Layout(state)
    by_place = state.by_place
    wanted = [part for part in state.partitions if part.topic in topics]
    too_few: list[str] = []
    no_room: list[str] = []
    changed: list[Reassignment] = []
    for placed in (placed for placed in layout.partitions if placed.topic in topics):
        before, partition = tuple(placed.replicas), by_place[placed.topic, placed.number]
        while len(placed.replicas) > factor:
            layout.remove(placed, _to_go(layout, state, partition, placed))
        while len(placed.replicas) < factor:
            free = [node for node in layout.takers if node not in placed.replicas]
            room = [node for node in free if layout.has_room(node, placed.size_bytes)]
            if not room:
                (no_room if free else too_few).append(partition.name)
                break
            layout.add(placed, layout.best_receiver(placed.replicas, room))
        else:
            after = tuple(placed.replicas)
            if after != before:
                changed.append(Reassignment(*partition.place, before, after, partition.size_bytes))
    return FactorPlan(
        tuple(changed),
        tuple(reassignment_under_way(part) for part in wanted if part.is_being_reassigned),
        tuple(too_few),
        tuple(no_room),
        tuple(
            part.name
            for part in wanted
            if part.leader == NO_LEADER and not part.is_being_reassigned and len(part.target) != factor
        ),
    )


def _to_go(layout: Layout, state: ClusterState, partition: Partition, placed: Placed) -> int:
    nodes = state.by_id
    racks = [layout.racks.get(replica, "") for replica in placed.replicas]

    def rank(replica: int) -> tuple[bool, bool, bool, bool, int, int]:
        """The greatest goes."""
        return (
            not nodes[replica].is_alive,
            replica not in partition.isr,
            replica != placed.replicas[0],
            racks.count(layout.racks.get(replica, "")) > 1,
            layout.loads.get(replica, 0),
            replica,
        )

    return max(placed.replicas, key=rank)
