"""Storage nodes register, restart, stop and are fenced; leadership follows."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from itertools import count

from barnabas.controller.core.decision import Decision
from barnabas.controller.core.elections import (
    Restart,
    after_hand_over,
    after_node_came,
    after_node_left,
    after_node_restarted,
    elections,
    never,
)
from barnabas.controller.core.gateways import remove_gateway
from barnabas.controller.core.min_in_sync import with_eligible_by_new_number
from barnabas.controller.core.partition_change import ElectionTerms
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import HandOverRequest, HandOverResponse
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord
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
        stopping=known is not None and same_process and known.stopping,
        log_directory_ids=sorted({*node.log_directory_ids, *_offline_directories(known, node)}),
        offline_log_dirs=node.offline_log_dirs,
    )
    records = []
    if known != stored:
        records.append(MetadataRecord(key=node_key(node.node_id), node=stored))
    eligible = image.eligible_epochs.keys() - {node.node_id}
    if not stored.stopping:
        eligible |= {node.node_id}
    if not same_process:
        restart = _restart(known, node)
        records += elections(image, lambda p, terms: after_node_restarted(p, restart, terms), eligible)
    elif known is not None and known.fenced:
        records += elections(image, after_node_came, eligible)
    if known is None or known.configs != stored.configs:
        records = list(with_eligible_by_new_number(image, records))
    return Decision(tuple(records), stored)


def fence_node(image: MetadataImage, node_id: int) -> Decision[None]:
    """The node is not there any more: clients are not shown it, and others lead what it led."""
    known = image.nodes.get(node_id)
    if known is None or known.fenced:
        return Decision((), None)
    others = image.eligible_epochs.keys() - {node_id}
    records = [_fenced(known)]
    records += elections(image, lambda p, terms: after_node_left(p, node_id, terms), others)
    return Decision(tuple(records), None)


def on_process_ended(
    image: MetadataImage,
    node_id: int,
    present: Container[int],
    *,
    came_back: Sequence[int] = (),
    gateways: Iterable[str] = (),
) -> Decision[None]:
    """The node's process has ended, and another may come in a moment: those nodes that are `present` take over at once
    what they can, by which the node is fenced, unless something is left that only it has. What only it has can do
    nothing better than wait for it; so it does while nobody else is there. `came_back` as in `hand_over`. The
    `gateways` were in that process, and others serve their clients.
    """
    known = image.nodes.get(node_id)
    others = [other for other in image.eligible_epochs if other != node_id and other in present]
    if known is None or known.fenced or not others:
        return Decision((), None)
    records = _handed_over(image, node_id, others, came_back)
    after = image.apply(records, image.revision + 1) if records else image
    if not any(node_id in p.isr for topic in after.topics.values() for p in topic.partitions):
        records.insert(0, _fenced(known))
    for gateway_id in gateways:
        records += remove_gateway(image, gateway_id).records
    return Decision(tuple(records), None)


def hand_over(
    image: MetadataImage,
    request: HandOverRequest,
    present: Container[int],
    *,
    came_back: Sequence[int] = (),
) -> Decision[HandOverResponse]:
    """The node is about to stop: it leaves every ISR that another eligible node is in which is `present`, and leads
    nothing any more that such a one can lead. What only silent ones could take over it keeps for now, as it does for
    good what nobody else has; the answer tells of it, for they may be heard of in a moment: a controller that has just
    taken over has heard of nobody yet. Asked again, it changes what has come about since.

    Those who `came_back` a moment ago, in the order in which they did, lead only what nobody else can: where nodes are
    restarted one after another, many clients have no connection yet to the one before.

    Raises KafkaError STALE_BROKER_EPOCH for a process that is not the node's.
    """
    node_id = request.node_id
    known = registered_process(image, node_id, request.incarnation_id)
    records = []
    if not known.stopping:
        stopping = NodeRecord()
        stopping.CopyFrom(known)
        stopping.stopping = True
        records.append(MetadataRecord(key=node_key(node_id), node=stopping))
    others = {other for other in image.eligible_epochs if other != node_id and other in present}
    records += _handed_over(image, node_id, others, came_back)
    after = image.apply(records, image.revision + 1)
    led = (p for topic in after.topics.values() for p in topic.partitions if p.leader == node_id)
    could_lead = image.eligible_epochs.keys() - {node_id}
    movable = sum(1 for partition in led if not could_lead.isdisjoint(partition.isr))
    return Decision(tuple(records), HandOverResponse(led_partitions=movable))


def _handed_over(
    image: MetadataImage, node_id: int, others: Collection[int], came_back: Sequence[int]
) -> list[MetadataRecord]:
    """What `others` take over from a node that stops."""

    def decide(partition: PartitionRecord, terms: ElectionTerms) -> PartitionRecord | None:
        return after_hand_over(partition, node_id, replace(terms, is_unclean=never, came_back=came_back))

    return elections(image, decide, others)


def _fenced(node: NodeRecord) -> MetadataRecord:
    fenced = NodeRecord()
    fenced.CopyFrom(node)
    fenced.fenced = True
    return MetadataRecord(key=node_key(node.node_id), node=fenced)


def registered_process(image: MetadataImage, node_id: int, incarnation_id: str) -> NodeRecord:
    """The node's record. Raises KafkaError STALE_BROKER_EPOCH for a process that is not the node's (any more)."""
    node = image.nodes.get(node_id)
    if node is None or node.fenced or node.incarnation_id != incarnation_id:
        raise KafkaError(
            ErrorCode.stale_broker_epoch, f"this process is not registered as storage node {node_id}"
        )
    return node


def _restart(known: NodeRecord | None, node: NodeRecord) -> Restart:
    if known is None:  # whatever it had when it was unregistered
        return Restart(node.node_id, is_clean=False, has_lost_a_directory=True)
    is_clean = node.HasField("previous_node_epoch") and node.previous_node_epoch == known.node_epoch
    here = {*node.log_directory_ids, *(node.empty_log_directory_ids if is_clean else ())}
    here.update(_offline_directories(known, node))
    lost = not here.issuperset(known.log_directory_ids)
    return Restart(node.node_id, is_clean=is_clean, has_lost_a_directory=lost)


def _offline_directories(known: NodeRecord | None, node: NodeRecord) -> set[bytes]:
    """The ids of directories that the process before this one had, and that it cannot open: they may be back some day
    with all that they hold. It says itself which partitions it cannot find meanwhile. Where fewer are offline than are
    missing, nobody knows which of them are gone for good.
    """
    missing = set(known.log_directory_ids).difference(node.log_directory_ids) if known is not None else set()
    return missing if len(missing) <= len(node.offline_log_dirs) else set()


def _next_epoch(image: MetadataImage, known: NodeRecord | None) -> int:
    return max(image.revision + 1, known.node_epoch + 1 if known is not None else 0)


def _free_position(image: MetadataImage, node: NodeRecord) -> int:
    """The place that the node wishes for, if it is free; else the smallest that is."""
    taken = {other.position for other in image.nodes.values()}
    if node.HasField("position") and node.position >= 0 and node.position not in taken:
        return node.position
    return next(position for position in count() if position not in taken)
