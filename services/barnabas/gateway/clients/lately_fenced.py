"""Which nodes were fenced a moment ago: Metadata goes on showing them for FENCED_SHOWN_SECONDS.

librdkafka forgets a broker that the answer lacks. When the same answer moves partitions from it to their new leaders,
they fall between the two, and are asked for again only within the second that follows. Kafka's brokers are shown until
their session ends, too, and any gateway answers for a node that is away.
"""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.metadata.image import MetadataImage


class LatelyFenced:
    """Owner of when each node was fenced, as far as this gateway saw it."""

    def __init__(self) -> None:
        self._fenced_at: dict[int, float] = {}

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> None:
        """A subscription's callback."""
        if old.nodes is new.nodes:
            return
        now = asyncio.get_running_loop().time()
        was_live = {node.node_id for node in old.live_nodes()}
        fenced = {node.node_id for node in new.nodes.values() if node.fenced}
        known = {node: at for node, at in self._fenced_at.items() if node in fenced}
        self._fenced_at = known | dict.fromkeys(was_live & fenced, now)

    def still_shown(self) -> list[int]:
        """The ids of nodes that are fenced, and were not a moment ago."""
        if not self._fenced_at:
            return []
        since = asyncio.get_running_loop().time() - limits.FENCED_SHOWN_SECONDS
        return [node_id for node_id, at in self._fenced_at.items() if at > since]
