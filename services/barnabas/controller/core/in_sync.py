"""AlterPartition: leaders propose who is in sync (KIP-497, KIP-903). The order of the checks is Kafka's.

A proposal goes by one state of the partition, which its partition epoch names: whatever the controller decided since
makes it void. So does the leader epoch, which tells a leader that was deposed and has not heard of it.
"""

from __future__ import annotations

from barnabas.controller import limits
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.elections import terms_of
from barnabas.controller.core.partition_change import PartitionChange
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    IsrResult,
)
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage

UNKNOWN_BROKER_EPOCH = -1


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Decide on every proposal of the request by itself.

    Raises KafkaError STALE_BROKER_EPOCH for a sender that is not the registered process of its node, INVALID_REQUEST.
    """
    sender = image.nodes.get(request.node_id)
    if sender is None or sender.node_epoch != request.node_epoch:
        raise KafkaError(
            ErrorCode.stale_broker_epoch,
            f"storage node {request.node_id} is not registered under epoch {request.node_epoch}",
        )
    if len(request.partitions) > limits.ISR_PROPOSALS_MAX:
        raise KafkaError(ErrorCode.invalid_request, f"{limits.ISR_PROPOSALS_MAX} partitions at most")
    changed: dict[tuple[bytes, int], PartitionRecord] = {}
    results = []
    for proposal in request.partitions:
        place = (proposal.topic_id, proposal.partition)
        known = changed.get(place) or image.partition(*place)
        try:
            after = _decided(image, request.node_id, known, proposal)
        except KafkaError as error:
            results.append(IsrResult(error_code=int(error.code)))
            continue
        if after is not known:
            changed[place] = after
        is_deposed = after.leader != request.node_id
        code = ErrorCode.new_leader_elected if is_deposed else ErrorCode.none
        results.append(IsrResult(error_code=int(code), partition=after))
    records = tuple(partition_entry(partition) for partition in changed.values())
    return Decision(records, AlterPartitionResponse(results=results))


def _decided(
    image: MetadataImage, sender: int, known: PartitionRecord | None, proposal: IsrProposal
) -> PartitionRecord:
    """The partition as proposed: `known` itself when that is what it is. Raises KafkaError."""
    if known is None:
        is_known_topic = proposal.topic_id in image.topics_by_id
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition if is_known_topic else ErrorCode.unknown_topic_id
        )
    proposed = [member.node_id for member in proposal.isr]
    _check_epochs(known, sender, proposal)
    if proposal.partition_epoch < known.partition_epoch:
        # What came of the same proposal before, when its answer was lost, is what is asked for.
        if sorted(proposed) == sorted(known.isr):
            return known
        raise KafkaError(ErrorCode.invalid_update_version)
    if len(set(proposed)) < len(proposed) or sender not in proposed or not set(proposed) <= {*known.replicas}:
        raise KafkaError(ErrorCode.invalid_request)
    for member in proposal.isr:
        epoch = image.eligible_epochs.get(member.node_id)
        is_known_as = epoch is not None and member.broker_epoch in (epoch, UNKNOWN_BROKER_EPOCH)
        if not is_known_as or member.node_id in known.offline_replicas:
            raise KafkaError(ErrorCode.ineligible_replica)
    change = PartitionChange(known, terms_of(image, image.topics_by_id[known.topic_id].name))
    change.isr = [replica for replica in known.replicas if replica in proposed]
    return change.build() or known


def _check_epochs(known: PartitionRecord, sender: int, proposal: IsrProposal) -> None:
    """Raise KafkaError for a proposal by who does not lead, or by what this controller does not know."""
    if proposal.leader_epoch > known.leader_epoch or proposal.partition_epoch > known.partition_epoch:
        # Another controller has decided more than this one knows, so this one is not active (KAFKA-14154).
        raise KafkaError(ErrorCode.not_controller)
    if proposal.leader_epoch < known.leader_epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)
    if sender != known.leader:
        raise KafkaError(ErrorCode.invalid_request)
