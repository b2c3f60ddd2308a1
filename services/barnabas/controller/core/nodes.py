"""Storage nodes register, restart and are fenced; leadership follows."""

from __future__ import annotations

from itertools import count

from barnabas.controller.core.decision import Decision
from barnabas.controller.core.elections import (
    after_node_came,
    after_node_left,
    after_node_restarted,
    elections,
)
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord
from barnabas.metadata.image import MetadataImage, node_key


def register_node(image: MetadataImage, node: NodeRecord) -> Decision[NodeRecord]:
    """A node came, came back, or came back as a new process; the answer is its record as stored.

    Its position is one that no node ever had, and stays. A new process gets a new node epoch: the
    revision of this change, or one more than the last. Raises KafkaError INVALID_REGISTRATION.
    """
    if node.node_id < 0 or not node.incarnation_id or not node.address:
        raise KafkaError(
            ErrorCode.invalid_registration,
            "a node needs an id of 0 or more, an incarnation id and an address",
        )
    known = image.nodes.get(node.node_id)
    same_process = known is not None and known.incarnation_id == node.incarnation_id
    stored = NodeRecord(
        node_id=node.node_id,
        incarnation_id=node.incarnation_id,
        address=node.address,
        rack=node.rack,
        configs=dict(node.configs),
        node_epoch=known.node_epoch if known is not None and same_process else _next_epoch(image, known),
        position=known.position if known is not None else _free_position(image, node),
    )
    records = []
    if known != stored:
        records.append(MetadataRecord(key=node_key(node.node_id), node=stored))
    others = {other.node_id for other in image.live_nodes() if other.node_id != node.node_id}
    if known is not None and not known.fenced and not same_process:
        records += elections(image, lambda p: after_node_restarted(p, node.node_id, others))
    elif known is None or known.fenced:
        records += elections(image, lambda p: after_node_came(p, node.node_id))
    return Decision(tuple(records), stored)


def fence_node(image: MetadataImage, node_id: int) -> Decision[None]:
    """The node is not there any more: clients are not shown it, and others lead what it led."""
    known = image.nodes.get(node_id)
    if known is None or known.fenced:
        return Decision((), None)
    fenced = NodeRecord()
    fenced.CopyFrom(known)
    fenced.fenced = True
    others = {node.node_id for node in image.live_nodes() if node.node_id != node_id}
    records = [MetadataRecord(key=node_key(node_id), node=fenced)]
    records += elections(image, lambda p: after_node_left(p, node_id, others))
    return Decision(tuple(records), None)


def _next_epoch(image: MetadataImage, known: NodeRecord | None) -> int:
    return max(image.revision + 1, known.node_epoch + 1 if known is not None else 0)


def _free_position(image: MetadataImage, node: NodeRecord) -> int:
    """The place that the node wishes for, if it is free; else the smallest that is."""
    taken = {other.position for other in image.nodes.values()}
    if node.HasField("position") and node.position >= 0 and node.position not in taken:
        return node.position
    return next(position for position in count() if position not in taken)
