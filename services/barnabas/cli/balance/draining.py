"""Where the replicas of a node go that is to have none."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.cli.balance.cluster_state import NO_LEADER, ClusterState, Partition, Reassignment
from barnabas.cli.balance.layout import Layout, Placed


@dataclass(frozen=True, slots=True)
class Drain:
    """What is to be moved, and what nobody can take."""

    reassignments: tuple[Reassignment, ...]
    too_many_replicas: tuple[str, ...] = ()
    """Partitions that have a replica on every other node that takes replicas already."""
    no_room: tuple[str, ...] = ()
    """Partitions for which no other node has room."""
    under_way: tuple[Reassignment, ...] = ()
    """What is being reassigned, by an earlier run or by somebody else. Their turn comes when that is done."""
    leaderless: tuple[str, ...] = ()
    """Partitions that nobody leads: there is nobody to copy them from."""


def plan_drain(state: ClusterState, node_id: int, *, allow_fewer: bool = False) -> Drain:
    """Every replica of `node_id` goes to a node in a rack new to its partition, if there is one: to the emptiest.

    With `allow_fewer` a partition that all others have already comes to have one replica less; an only replica never
    goes without another.
    """
    layout = Layout(state)
    others = [node for node in layout.takers if node != node_id]
    held = state.replicas_on(node_id)
    under_way = tuple(
        reassignment_under_way(partition) for partition in held if partition.is_being_reassigned
    )
    leaderless = tuple(
        part.name for part in held if part.leader == NO_LEADER and not part.is_being_reassigned
    )
    too_many: list[str] = []
    no_room: list[str] = []
    fewer: dict[tuple[str, int], Reassignment] = {}
    for placed in layout.partitions:
        if node_id not in placed.replicas:
            continue
        free = [node for node in others if node not in placed.replicas]
        name = f"{placed.topic}-{placed.number}"
        if not free and allow_fewer and len(placed.replicas) > 1:
            before = tuple(placed.replicas)
            after = tuple(replica for replica in before if replica != node_id)
            fewer[placed.topic, placed.number] = Reassignment(placed.topic, placed.number, before, after)
        elif not free:
            too_many.append(name)
        elif (receiver := _receiver(layout, placed, node_id, free)) is None:
            no_room.append(name)
        else:
            layout.replace(placed, node_id, receiver)
    reassignments = sorted(
        (*layout.reassignments(), *fewer.values()), key=lambda reassignment: reassignment.place
    )
    return Drain(tuple(reassignments), tuple(too_many), tuple(no_room), under_way, leaderless)


def reassignment_under_way(partition: Partition) -> Reassignment:
    """The reassignment of a partition that is being reassigned."""
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    return Reassignment(partition.topic, partition.number, before, partition.target, partition.size_bytes)


def _receiver(layout: Layout, placed: Placed, node_id: int, free: list[int]) -> int | None:
    """Who has room, and of those who keeps racks apart best and has least to hold, or to lead."""
    staying = [replica for replica in placed.replicas if replica != node_id]
    room = [node for node in free if layout.has_room(node, placed.size_bytes)]
    return layout.best_receiver(staying, room) if room else None
