"""Where the gateway in a node's own process is, and was until a moment ago: clients are told of one place for a broker.

While the process is away, that of another gateway could be told. But where brokers have their own port only, nobody
listens there for the node; and librdkafka stays with what it was told: of the coordinator it takes the broker's id from
the answer and no address, and so asks at that place long after the broker is back.

As soon as the process serves clients again the broker is shown, though its node may still be fenced: the gateway that a
client asks is never missing among the brokers that it names.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.messages.metadata_pb2 import GatewayRecord
from barnabas.metadata.image import MetadataImage


class OwnGateways:
    """Owner of the last record of each node's own gateway, as far as this gateway saw one."""

    def __init__(self) -> None:
        self._last: dict[int, GatewayRecord] = {}
        self._missed_since: dict[int, float] = {}
        """Of live nodes whose gateway is not there."""

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """A subscription's callback."""
        if old.gateways is new.gateways and old.nodes is new.nodes:
            return
        now = asyncio.get_running_loop().time()
        there = {each.node_id: each for each in new.gateways.values() if each.HasField("node_id")}
        known = (self._last | there).items()
        self._last = {node_id: gateway for node_id, gateway in known if node_id in new.nodes}
        live = {node.node_id for node in new.live_nodes()}
        missed = (self._last.keys() & live) - there.keys()
        self._missed_since = {node_id: self._missed_since.get(node_id, now) for node_id in missed}

    def of(self, node_id: int) -> GatewayRecord | None:
        """The gateway in the node's process, as it was there last; None where there has been none for long, though the
        node is there: others serve it.
        """
        since = self._missed_since.get(node_id)
        if (
            since is not None
            and since + limits.OWN_GATEWAY_MISSED_SECONDS < asyncio.get_running_loop().time()
        ):
            return None
        return self._last.get(node_id)


def starting_nodes(image: MetadataImage) -> list[int]:
    """The ids of nodes that are fenced, and have a gateway in their process that serves clients: as a rule the process
    was started a moment ago, and its node is about to register.
    """
    attended = (each.node_id for each in image.gateways.values() if each.HasField("node_id"))
    return [node_id for node_id in attended if node_id in image.nodes and image.nodes[node_id].fenced]
