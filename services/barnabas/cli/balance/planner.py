"""The plan of `barnabas rebalance`: racks, then bytes, then leaders come to be even, with few bytes moved.

A pure function of the cluster's state: the same state has the same plan. What it promises of every partition: as many
replicas as before, none twice on a node, in as many racks as before or more. Of the bytes: what is moved to even out
nodes weighs at most twice what those above the mean have too much (`load_excess`), which is what any plan must move
that evens them out wholly. That is done over all nodes, then in each rack, for where every partition has a replica in
each rack, racks cannot be evened out. (A replica weighs its bytes and `REPLICA_COST_BYTES`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.cli.balance.cluster_state import ClusterState, Reassignment
from barnabas.cli.balance.layout import Layout, Placed
from barnabas.cli.balance.leaders import even_leaders

TOLERANCE: Final = 0.1
"""How far from the mean a node may be, as a share of it, before anything is moved for that."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be changed. Those that add no replica change only who is preferred to lead."""

    reassignments: tuple[Reassignment, ...]

    @property
    def bytes_moved(self) -> int:
        return sum(reassignment.bytes_moved for reassignment in self.reassignments)

    @property
    def replicas_moved(self) -> int:
        return sum(len(reassignment.added) for reassignment in self.reassignments)


def plan_rebalance(state: ClusterState, *, leaders_only: bool = False, tolerance: float = TOLERANCE) -> Plan:
    """The reassignments that even `state` out; none where it is even, or where nobody can take anything.

    With `leaders_only` no replica goes to another node: only who is preferred to lead changes.
    """
    layout = Layout(state)
    if not layout.takers:
        return Plan(())
    if not leaders_only:
        spread_over_racks(layout)
        even_load(layout, layout.takers, tolerance)
        for rack in sorted({layout.racks[node] for node in layout.takers}):
            even_load(layout, [node for node in layout.takers if layout.racks[node] == rack], tolerance)
    even_leaders(layout, tolerance=None if leaders_only else tolerance)
    return Plan(layout.reassignments())


def spread_over_racks(layout: Layout) -> None:
    """Where replicas share a rack while another rack has none, one of them goes there: to its emptiest node."""
    racks = {layout.racks[node] for node in layout.takers}
    for placed in layout.partitions:
        if len(placed.replicas) < 2 or len(racks) < 2:
            continue
        while layout.rack_count(placed.replicas) < min(len(placed.replicas), len(racks)):
            step = _step_apart(layout, placed)
            if step is None:
                break
            layout.replace(placed, *step)


def _step_apart(layout: Layout, placed: Placed) -> tuple[int, int] | None:
    """(old, new) such that one more rack has a replica."""
    taken = [layout.racks.get(replica, "") for replica in placed.replicas]
    # The last of those that share a rack goes, so that who leads stays.
    crowded = [
        replica
        for replica, rack in zip(placed.replicas, taken, strict=True)
        if taken.count(rack) > 1 and replica in layout.loads
    ]
    free = sorted(
        (node for node in layout.takers if layout.racks[node] not in taken),
        key=lambda node: (layout.loads[node], node),
    )
    return next(
        ((old, new) for new in free for old in reversed(crowded) if layout.may_replace(placed, old, new)),
        None,
    )


def load_excess(layout: Layout, nodes: Sequence[int]) -> float:
    """What those above the mean of `nodes` have too much: the least that must be moved to even them out wholly."""
    mean = layout.mean_load(nodes)
    return sum(max(layout.loads[node] - mean, 0) for node in nodes)


def even_load(layout: Layout, nodes: Sequence[int], tolerance: float) -> None:
    """Move replicas from those of `nodes` above their mean to those below it, until all are within `tolerance` of it.

    Each takes at least its own weight off the sum of all distances from the mean, which is twice the excess in
    the beginning: so no more than that is moved in all.
    """
    evening = _Evening(layout, nodes, layout.mean_load(nodes), layout.mean_load(nodes) * tolerance)
    held: dict[int, list[Placed]] = {node: [] for node in nodes}
    for placed in sorted(layout.partitions, key=lambda each: (-each.weight, each.topic, each.number)):
        for replica in placed.replicas:
            if replica in held:
                held[replica].append(placed)
    is_changed = True
    while is_changed:
        is_changed = False
        for donor in sorted(nodes, key=lambda node: (-layout.loads[node], node)):
            is_changed |= _relieve(evening, donor, held)


@dataclass(frozen=True, slots=True)
class _Evening:
    """Which nodes come to be even, around which mean, and how far from it they may be."""

    layout: Layout
    nodes: Sequence[int]
    mean: float
    band: float


def _relieve(evening: _Evening, donor: int, held: dict[int, list[Placed]]) -> bool:
    """Give away replicas of one node, the heaviest that fit first; whether there were any."""
    layout, loads = evening.layout, evening.layout.loads
    kept: list[Placed] = []
    waiting = held[donor]
    gone = 0
    for at, placed in enumerate(waiting):
        excess = loads[donor] - evening.mean
        deficit = evening.mean - min(loads[node] for node in evening.nodes)
        if excess <= 0 or max(excess, deficit) <= evening.band:
            kept += waiting[at:]
            break
        receiver = _receiver(evening, placed, donor)
        if receiver is None:
            kept.append(placed)
            continue
        layout.replace(placed, donor, receiver)
        held[receiver].append(placed)
        gone += 1
    held[donor] = kept
    return gone > 0


def _receiver(evening: _Evening, placed: Placed, donor: int) -> int | None:
    """The emptiest node that may have the replica, where that evens out as much as it moves."""
    layout, loads, weight = evening.layout, evening.layout.loads, placed.weight
    excess = loads[donor] - evening.mean
    best: int | None = None
    for node in evening.nodes:
        deficit = evening.mean - loads[node]
        if deficit <= 0 or max(excess, deficit) <= evening.band:
            continue
        gain = excess + deficit - abs(excess - weight) - abs(deficit - weight)
        if gain < weight or (best is not None and loads[node] >= loads[best]):
            continue
        if layout.may_replace(placed, donor, node):
            best = node
    return best
