"""How evenly a cluster's replicas, bytes and leaders lie: node by node, before and after a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from barnabas.cli.balance.cluster_state import ClusterState, Reassignment


@dataclass(frozen=True, slots=True)
class Share:
    """What one node has of the whole."""

    node_id: int
    rack: str
    replicas: int
    preferred_leaders: int
    size_bytes: int


def shares(state: ClusterState) -> list[Share]:
    """A share for each registered node, as it is once reassignments that are under way are done."""
    replicas = dict.fromkeys((node.node_id for node in state.nodes if node.is_registered), 0)
    leaders, size_bytes = dict(replicas), dict(replicas)
    for partition in state.partitions:
        target = partition.target
        for replica in target:
            if replica in replicas:
                replicas[replica] += 1
                size_bytes[replica] += partition.size_bytes
        if target and target[0] in leaders:
            leaders[target[0]] += 1
    racks = {node.node_id: node.rack for node in state.nodes}
    return [
        Share(node_id, racks[node_id], replicas[node_id], leaders[node_id], size_bytes[node_id])
        for node_id in replicas
    ]


def after(state: ClusterState, reassignments: Iterable[Reassignment]) -> ClusterState:
    """The state once these reassignments are done."""
    moved = {reassignment.place: reassignment.after for reassignment in reassignments}
    return replace(
        state,
        partitions=tuple(
            replace(partition, replicas=moved[partition.place]) if partition.place in moved else partition
            for partition in state.partitions
        ),
    )


def sharing_a_rack(state: ClusterState) -> int:
    """Partitions with two replicas in a rack while another rack, with a node that takes replicas, has none."""
    racks = {node.node_id: node.rack for node in state.nodes}
    open_racks = {node.rack for node in state.nodes if node.takes_replicas}
    count = 0
    for partition in state.partitions:
        target = partition.target
        taken = {racks.get(replica, "") for replica in target}
        count += len(taken) < len(target) and bool(open_racks - taken)
    return count
