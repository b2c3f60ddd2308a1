"""Which replica a consumer is to read from (KIP-392), as the partition's leader says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.metadata.image import MetadataImage
from barnabas.metadata.settings.replication import RACK_AWARE

Readable = tuple[int, int, float]
"""(node, its log end, when it last had everything) of a follower."""

ReplicaSelector = Callable[[str, MetadataImage, int, Iterable[Readable]], int | None]
"""(the consumer's rack, the metadata, the leader, the followers that have what it wants) to the follower it is sent to;
None: it reads from the leader.
"""


def rack_aware(rack_id: str, image: MetadataImage, leader: int, readable: Iterable[Readable]) -> int | None:
    """The leader, unless others alone are in the rack: then the one whose log is longest, that last had everything, of
    the highest id. Racks compare exactly; nodes that are fenced have none.
    """

    def is_near(node_id: int) -> bool:
        node = image.nodes.get(node_id)
        return node is not None and not node.fenced and node.rack == rack_id

    if not rack_id or is_near(leader):
        return None
    near = [(end, caught_up, node) for node, end, caught_up in readable if is_near(node)]
    return max(near)[2] if near else None


def selector_of(class_name: object) -> ReplicaSelector | None:
    """What the setting replica.selector.class asks for; None: all read from the leader."""
    return rack_aware if class_name == RACK_AWARE else None
