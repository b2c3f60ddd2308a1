"""Where the replicas of new partitions go: evenly over the nodes that are there, and apart from rack to rack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import NodeRecord


def place_replicas(
    nodes: Iterable[NodeRecord], partition_count: int, replication_factor: int, start: int
) -> list[list[int]]:
    """Node ids for each new partition, the preferred leader first.

    Nodes stand in a ring in which racks alternate. Leaders follow one another around it from `start` on, which
    the caller moves from topic to topic; followers take the nodes after their leader, first those of racks that
    the partition is not in yet, shifted by one with each round so that one node's followers differ.

    A node that is about to stop gets nothing new. One that is fenced, be it because it has stopped, leads nothing, and
    gets a replica, which it is to copy when it is back, where its rack or the whole cluster has too few others.
    Raises KafkaError INVALID_REPLICATION_FACTOR when there are too few nodes.
    """
    candidates = [node for node in nodes if node.fenced or not node.stopping]
    live = [node for node in candidates if not node.fenced]
    if not live:
        raise _cannot_replicate(
            replication_factor,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > len(candidates):
        raise _cannot_replicate(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    leaders, ring = _ring(live), _ring(candidates)
    return [
        _replicas(ring, leaders[(start + index) % len(leaders)], index // len(leaders), replication_factor)
        for index in range(partition_count)
    ]


def _ring(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    racks: dict[str, list[NodeRecord]] = {}
    for node in sorted(nodes, key=lambda node: node.node_id):
        racks.setdefault(node.rack, []).append(node)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [node for round_ in rounds for node in round_ if node is not None]


def _replicas(ring: list[NodeRecord], leader: NodeRecord, shift: int, replication_factor: int) -> list[int]:
    place = ring.index(leader)
    others = ring[place + 1 :] + ring[:place]
    if others:
        turn = shift % len(others)
        others = others[turn:] + others[:turn]
    others.sort(key=lambda node: node.fenced)
    chosen = [leader]
    for node in others:
        if len(chosen) < replication_factor and node.rack not in {other.rack for other in chosen}:
            chosen.append(node)
    for node in others:
        if len(chosen) < replication_factor and node not in chosen:
            chosen.append(node)
    return [node.node_id for node in chosen]


def _cannot_replicate(replication_factor: int, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_replication_factor,
        f"Unable to replicate the partition {replication_factor} time(s): {why}",
    )
