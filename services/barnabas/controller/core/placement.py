"""Where the replicas of new partitions go: evenly over the live nodes, and apart from rack to rack."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import NodeRecord


def place_replicas(
    nodes: Sequence[NodeRecord], partition_count: int, replication_factor: int, start: int
) -> list[list[int]]:
    """Node ids for each new partition, the preferred leader first.

    Nodes stand in a ring in which racks alternate. Leaders follow one another around it from `start` on, which
    the caller moves from topic to topic; followers take the nodes after their leader, first those of racks that
    the partition is not in yet, shifted by one with each round so that one node's followers differ.
    Raises KafkaError INVALID_REPLICATION_FACTOR when there are too few nodes.
    """
    if not nodes:
        raise _cannot_replicate(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(nodes):
        raise _cannot_replicate(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(nodes)} broker(s) are registered.",
        )
    ring = _ring(nodes)
    return [
        _replicas(ring, (start + index) % len(ring), index // len(ring), replication_factor)
        for index in range(partition_count)
    ]


def _ring(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    racks: dict[str, list[NodeRecord]] = {}
    for node in sorted(nodes, key=lambda node: node.node_id):
        racks.setdefault(node.rack, []).append(node)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [node for round_ in rounds for node in round_ if node is not None]


def _replicas(ring: list[NodeRecord], leader: int, shift: int, replication_factor: int) -> list[int]:
    others = ring[leader + 1 :] + ring[:leader]
    if others:
        turn = shift % len(others)
        others = others[turn:] + others[:turn]
    chosen = [ring[leader]]
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
