"""Leader epochs that logs have seen and the metadata do not know: the metadata were restored from a backup."""

from __future__ import annotations

from typing import Final

from barnabas.controller import limits
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.nodes import registered_process
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import RaiseLeaderEpochsRequest, RaiseLeaderEpochsResponse
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import LEADER_EPOCH_MAX

FORGOTTEN_ELECTIONS: Final = 1_000
"""Epochs that are skipped: those in which nothing was written stand in no log, but clients have heard of them, and take
no metadata of an older epoch.
"""


def raise_leader_epochs(
    image: MetadataImage, request: RaiseLeaderEpochsRequest
) -> Decision[RaiseLeaderEpochsResponse]:
    """If a log of the node has seen an epoch that is not below the partition's, all partitions that the node has
    replicas of skip FORGOTTEN_ELECTIONS epochs, and those rise above what their logs have seen.

    An epoch that is already above it is no news, so a request that comes late, twice or from several replicas does
    nothing. Partitions that are gone or not the node's, and epochs that no partition can have come to, are passed over.
    Raises KafkaError STALE_BROKER_EPOCH for a process that is not the node's, INVALID_REQUEST.
    """
    node_id = request.node_id
    registered_process(image, node_id, request.incarnation_id)
    if len(request.partitions) > limits.SEEN_LEADER_EPOCHS_MAX:
        raise KafkaError(
            ErrorCode.invalid_request, f"leader epochs of {limits.SEEN_LEADER_EPOCHS_MAX} partitions at most"
        )
    newer: dict[tuple[bytes, int], int] = {}
    for seen in request.partitions:
        place = (seen.topic_id, seen.partition)
        known = image.partition(*place)
        if known is None or node_id not in known.replicas:
            continue
        if known.leader_epoch <= seen.leader_epoch <= LEADER_EPOCH_MAX:
            newer[place] = max(newer.get(place, 0), seen.leader_epoch)
    records = []
    for topic in image.topics.values() if newer else ():
        for partition in topic.partitions:
            seen_epoch = newer.get((partition.topic_id, partition.partition), partition.leader_epoch)
            if node_id in partition.replicas and seen_epoch <= LEADER_EPOCH_MAX:
                records.append(partition_entry(_raised(partition, seen_epoch + 1 + FORGOTTEN_ELECTIONS)))
    return Decision(records, RaiseLeaderEpochsResponse())


def _raised(partition: PartitionRecord, leader_epoch: int) -> PartitionRecord:
    changed = PartitionRecord()
    changed.CopyFrom(partition)
    changed.leader_epoch = leader_epoch
    changed.partition_epoch += 1
    return changed
