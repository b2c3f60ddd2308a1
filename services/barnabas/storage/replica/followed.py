"""Whom the replicas of this node follow, and which of them have something to tell their leader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.storage.replica.replication_quota import ReplicationQuota

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

PAUSE_SECONDS_MIN: Final = 0.05
"""How long a follower rests after a first failure; twice as long each time, up to replica.fetch.backoff.ms."""


class FollowedNode:
    """What is followed at one node; owned by `Followed`."""

    __slots__ = ("asking", "replicas", "wake")

    def __init__(self) -> None:
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        self.asking: dict[Replica, None] = {}
        """Those with a position that the leader has not heard, in order."""
        self.wake = asyncio.Event()
        """Set when there are any."""


class Followed:
    """Owner of which replicas follow which node."""

    def __init__(self, backoff_ms: int, quota: ReplicationQuota) -> None:
        """`backoff_ms` is replica.fetch.backoff.ms; `quota` is that of throttled followers."""
        self.quota = quota
        self.pause_seconds_max = max(backoff_ms / 1000, PAUSE_SECONDS_MIN)
        self.by_node: dict[int, FollowedNode] = {}
        """A node stays until `ReplicaFetchers` has seen that it is followed no longer."""
        self.changed = asyncio.Event()
        """Set when a node is followed that was not before, or no longer."""

    def add(self, replica: Replica, leader: int) -> None:
        """The replica follows node `leader`."""
        node = self.by_node.get(leader)
        if node is None:
            node = self.by_node[leader] = FollowedNode()
        if not node.replicas:
            self.changed.set()
        node.replicas[replica.topic_id, replica.index] = replica

    def remove(self, replica: Replica, leader: int) -> None:
        """It does so no longer."""
        node = self.by_node[leader]
        node.replicas.pop((replica.topic_id, replica.index), None)
        node.asking.pop(replica, None)
        if not node.replicas:
            self.changed.set()

    def ask(self, replica: Replica, leader: int) -> None:
        """The leader is to hear of the replica's position, which is taken when it is sent."""
        node = self.by_node[leader]
        node.asking[replica] = None
        node.wake.set()
