"""Which storage node a fetch reads a partition from: its leader, or an in-sync follower that is nearer (KIP-392).

Where clients tell nodes apart, the leader itself sends a client that names its rack to a follower there, and the client
asks at that broker's own endpoint: so a fetch with a rack is meant for the node that was addressed. Where one broker
stands for all, the client has no choice to make, and the gateway makes it for its own rack, where the leader has a
selector. A follower that left the in-sync replicas, is fenced or does not answer is not read from.

Kafka's kafka-replica-verification compares replicas with one another: it says that it is a debugging consumer, and gets
what the replica at the broker that it addresses has to say, whatever that is: also nothing, where the node is away and
others serve its port.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.request import Request
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.settings.replication import RACK_AWARE

SELECTOR: Final = "replica.selector.class"

_DEBUGGING_CONSUMER: Final = -2
"""Kafka's replica id of who looks at one replica."""


class ReadSources:
    """What one fetch goes by; owns nothing."""

    __slots__ = ("_image", "_links", "_own_rack", "addressed", "is_debugging", "rack_id")

    def __init__(self, request: Request) -> None:
        self._image = request.image
        self._links = request.parts.links
        self._own_rack = ""
        self.rack_id: str = ""
        """The client's, for the node that it addressed."""
        self.addressed: int | None = None
        """The node that the fetch is meant for, whatever it is to a partition; None: for the leaders."""
        self.is_debugging = False
        """Whether the client wants to hear of that node's replica alone."""
        if not request.client.listener.port_per_node:
            self._own_rack = request.parts.config.broker_rack
        elif rack_id := request.get("rack_id", ""):
            self.rack_id, self.addressed = rack_id, request.addressed_node(self._image)
        elif _replica_id(request) == _DEBUGGING_CONSUMER:
            self.addressed = request.addressed_node(self._image)
            self.is_debugging = self.addressed is not None

    def node_for(self, record: PartitionRecord) -> int:
        """The node to read from; the partition has a leader."""
        if self.addressed is not None:
            hears_it = self.is_debugging or self._is_readable(self.addressed, record)
            return self.addressed if hears_it and self.addressed in record.replicas else record.leader
        if self._own_rack:
            return self._nearest(record)
        return record.leader

    def _nearest(self, record: PartitionRecord) -> int:
        nodes = self._image.nodes
        leader = nodes.get(record.leader)
        if leader is None or leader.rack == self._own_rack or leader.configs.get(SELECTOR) != RACK_AWARE:
            return record.leader
        near = [
            node
            for node in record.isr
            if node in nodes and nodes[node].rack == self._own_rack and self._is_readable(node, record)
        ]
        # The same one each time, so that what its readers have seen does not go back and forth between two logs.
        return near[record.partition % len(near)] if near else record.leader

    def _is_readable(self, node: int, record: PartitionRecord) -> bool:
        if node not in record.isr:
            return False
        link = self._links.storage(node)
        return link is not None and not link.fetches.is_silent


def _replica_id(request: Request) -> int:
    """Which replica asks, as it says; negative for consumers. Version 15 moved it (KIP-903)."""
    state = request.get("replica_state", None)
    return int(request.get("replica_id", -1) if state is None else state.replica_id)
