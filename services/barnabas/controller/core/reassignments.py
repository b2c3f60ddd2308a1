"""AlterPartitionReassignments: partitions move to other replicas while they are used (KIP-455).

A reassignment first adds: the partition has its old and its new replicas, and the new ones copy. It ends by itself in
the change in which the last new one comes to be in sync (`partition_change`): then the old ones go. Until then it can
be replaced by another, or given up; the replicas that it would have added go then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.controller.core.decision import Decision, failure, partition_entry
from barnabas.controller.core.elections import terms_of
from barnabas.controller.core.partition_change import ElectionTerms, PartitionChange
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionReassignment,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage, TopicImage

_BAD_ASSIGNMENT: Final = "The manual partition assignment includes"


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Decide on every partition of the request by itself."""
    changed: dict[tuple[bytes, int], PartitionRecord] = {}
    results = []
    for wanted in request.partitions:
        try:
            topic = _topic(image, wanted)
            place = (topic.topic_id, wanted.partition)
            known = changed.get(place) or topic.partitions[wanted.partition]
            terms = terms_of(image, topic.name)
            if wanted.cancel:
                after = _cancelled(known, topic.name, terms)
            else:
                _check(image, known, wanted.replicas, request.allow_replication_factor_change)
                after = _begun(known, list(wanted.replicas), terms)
        except KafkaError as error:
            results.append(failure(error))
            continue
        if after is not known:
            changed[place] = after
        results.append(ResourceResult())
    records = tuple(partition_entry(partition) for partition in changed.values())
    return Decision(records, AlterPartitionReassignmentsResponse(results=results))


def _topic(image: MetadataImage, wanted: PartitionReassignment) -> TopicImage:
    topic = image.topics.get(wanted.topic)
    if topic is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {wanted.topic}."
        )
    if not 0 <= wanted.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"Unable to find partition {wanted.topic}:{wanted.partition}.",
        )
    return topic


def _check(
    image: MetadataImage, known: PartitionRecord, replicas: Sequence[int], may_change_factor: bool
) -> None:
    """Raise KafkaError for replicas that cannot be."""
    reason = ""
    if not replicas:
        reason = "an empty replica list."
    for replica in sorted(replicas):
        if replica not in image.nodes:
            reason = f"broker {replica}, but no such broker is registered."
        elif list(replicas).count(replica) > 1:
            reason = f"the broker {replica} more than once."
        if reason:
            break
    if reason:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"{_BAD_ASSIGNMENT} {reason}")
    present = len(known.replicas) - len(known.removing_replicas)
    if len(replicas) != present and not may_change_factor:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {present} to {len(replicas)}",
        )


def _begun(known: PartitionRecord, target: list[int], terms: ElectionTerms) -> PartitionRecord:
    """The partition on its way to `target`, or there already; `known` itself when nothing changes."""
    # What an earlier reassignment was adding, and nobody has reason to count on, goes at once as if that were given up.
    relied_on = {*known.isr, *known.eligible_leader_replicas, *known.last_known_eligible_leader_replicas}
    given_up = set(known.adding_replicas) - set(target) - relied_on
    removing = sorted(set(known.replicas) - set(target) - given_up)
    adding = sorted(set(target) - set(known.replicas))
    # Those that an earlier reassignment was adding and this one wants as well are still being added, in sync or not:
    # they go where both are given up, be it that the same was only asked for twice.
    adding += [replica for replica in known.adding_replicas if replica in target]
    change = PartitionChange(known, terms)
    change.replicas = [*target, *removing]
    change.adding, change.removing = sorted(adding), removing
    return change.build() or known


def _cancelled(known: PartitionRecord, topic: str, terms: ElectionTerms) -> PartitionRecord:
    """The partition with the replicas that it had before its reassignment."""
    if not known.adding_replicas and not known.removing_replicas:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    change = PartitionChange(known, terms)
    change.replicas = [replica for replica in known.replicas if replica not in known.adding_replicas]
    change.isr = [replica for replica in known.isr if replica in change.replicas]
    # That a replica is eligible is not enough: it is so until it comes back as a process that may have lost records,
    # and then those that were to be added would be missed. Nor that one is in sync that is stopping: nobody would lead.
    if not change.can_be_led_by(change.isr) and not terms.is_unclean():
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Unable to revert partition assignment for {topic}:{known.partition} because it would require an "
            "unclean leader election.",
        )
    change.adding, change.removing = [], []
    return change.build() or known
