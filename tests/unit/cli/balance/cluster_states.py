"""Clusters as examples and as Hypothesis makes them up."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barnabas.cli.balance.cluster_state import ClusterState, Directory, Node, Partition

MEGABYTE = 1024 * 1024
DISK = (Directory("/d", None, 10**15, 9 * 10**14),)


def nodes(*racks: str) -> tuple[Node, ...]:
    """A node in each of these racks, with ids from 1 on."""
    return tuple(
        Node(at, rack, "host", 9000 + at, directories=DISK) for at, rack in enumerate(racks, start=1)
    )


def partition(topic: str, number: int, *replicas: int, size: int = 0) -> Partition:
    """One that is led by the first of its replicas, all of which are in sync."""
    sizes = dict.fromkeys(replicas, size)
    return Partition(topic, number, replicas, replicas, replicas[0], sizes=sizes, size_bytes=size)


def cluster(members: tuple[Node, ...], *partitions: Partition) -> ClusterState:
    return ClusterState(members, partitions)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    """Up to eight nodes in racks or without one, some away or cordoned, and partitions on any of them."""
    racks = draw(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=8))
    members = []
    for node in nodes(*racks):
        kind = draw(st.sampled_from(["alive"] * 6 + ["fenced", "cordoned"]))
        cordoned = ("*",) if kind == "cordoned" else ()
        members.append(replace(node, is_fenced=kind == "fenced", cordoned=cordoned))
    ids = [node.node_id for node in members]
    partitions = []
    for number in range(draw(st.integers(0, 12))):
        replicas = draw(st.permutations(ids).map(tuple))[: draw(st.integers(1, min(4, len(ids))))]
        size = draw(st.sampled_from([0, 1, 100, MEGABYTE, 50 * MEGABYTE, 4_000 * MEGABYTE]))
        made = partition("t", number, *replicas, size=size)
        kind = draw(st.sampled_from(["still"] * 8 + ["moving", "leaderless"]))
        if kind == "moving":
            made = replace(made, removing=replicas[-1:] if len(replicas) > 1 else ())
        elif kind == "leaderless":
            made = replace(made, leader=-1)
        partitions.append(made)
    return ClusterState(tuple(members), tuple(partitions))
