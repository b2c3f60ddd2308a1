"""Storage nodes are forgotten (UnregisterBroker)."""

from __future__ import annotations

from barnabas.controller.core.decision import Decision
from barnabas.controller.core.elections import after_node_left, elections
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage, node_key


def unregister_node(
    image: MetadataImage, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    """The node is not known any more: others lead what it led. It stays a replica of what it is a replica of. If
    it comes again, with whatever disks, it leads only what nobody else has a copy of, or what it has caught up with.

    So one that is there is not forgotten while a partition with other replicas has it alone: nobody could lead that any
    more. Raises KafkaError BROKER_ID_NOT_REGISTERED and INVALID_REQUEST.
    """
    node_id = request.node_id
    known = image.nodes.get(node_id)
    if known is None:
        raise KafkaError(
            ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered"
        )
    others = image.eligible_epochs.keys() - {node_id}
    records = elections(image, lambda p, terms: after_node_left(p, node_id, terms), others)
    orphaned = [
        r.partition for r in records if r.partition.leader == NO_LEADER and len(r.partition.replicas) > 1
    ]
    if orphaned and not known.fenced:
        first = f"{image.topics_by_id[orphaned[0].topic_id].name}-{orphaned[0].partition}"
        raise KafkaError(
            ErrorCode.invalid_request,
            f"broker {node_id} is there, and nobody else could lead {len(orphaned)} partitions such as {first}: "
            "wait until other replicas are in sync, or stop it first",
        )
    records.append(MetadataRecord(key=node_key(node_id)))
    return Decision(tuple(records), UnregisterBrokerResponse(node_epoch=known.node_epoch))
