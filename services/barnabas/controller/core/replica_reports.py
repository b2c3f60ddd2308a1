"""ReportReplicas: a storage node tells which of its logs cannot be used, and which can be again.

A replica that is *offline* neither leads nor is in sync until its node says otherwise, or is a new process. Where it is
the only replica nothing is decided: nobody could take over. Nor is it where only its disk takes no more records, while
nobody else in sync can lead: its records can be read there.
"""

from __future__ import annotations

from barnabas.controller import limits
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.elections import terms_of
from barnabas.controller.core.nodes import registered_process
from barnabas.controller.core.partition_change import PartitionChange
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import ReportReplicasRequest, ReportReplicasResponse
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage


def report_replicas(image: MetadataImage, request: ReportReplicasRequest) -> Decision[ReportReplicasResponse]:
    """What follows from the state of the node's replicas. What is known already, and what is gone or not the node's,
    is passed over.

    Raises KafkaError STALE_BROKER_EPOCH for a process that is not the node's, INVALID_REQUEST.
    """
    node_id = request.node_id
    registered_process(image, node_id, request.incarnation_id)
    if len(request.replicas) > limits.REPLICA_REPORTS_MAX:
        raise KafkaError(ErrorCode.invalid_request, f"{limits.REPLICA_REPORTS_MAX} replicas at most")
    changed: dict[tuple[bytes, int], PartitionRecord] = {}
    for report in request.replicas:
        place = (report.topic_id, report.partition)
        known = changed.get(place) or image.partition(*place)
        if known is None or node_id not in known.replicas or len(known.replicas) == 1:
            continue
        if report.offline == (node_id in known.offline_replicas):
            continue
        change = PartitionChange(known, terms_of(image, image.topics_by_id[known.topic_id].name))
        if report.offline:
            change.offline = [*known.offline_replicas, node_id]
            change.leave(node_id)
            if report.refuses_writes and not change.can_be_led_by(change.isr):
                continue
        else:
            change.offline = [replica for replica in known.offline_replicas if replica != node_id]
        after = change.build()
        assert after is not None, "a replica came to be offline, or is it no more"
        changed[place] = after
    records = tuple(partition_entry(partition) for partition in changed.values())
    return Decision(records, ReportReplicasResponse())
