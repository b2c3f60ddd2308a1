"""AlterPartitionReassignments: partitions move to other replicas while they are used (KIP-455).

A reassignment first adds: the partition has its old and its new replicas, and the new ones copy. It ends by itself in
the change in which the last new one comes to be in sync (`finished`): then the old ones go. Until then it can be
replaced by another, or given up; the replicas that it would have added go then.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Final

from barnabas.controller.core.decision import Decision, failure, partition_entry
from barnabas.controller.core.elections import IsUnclean, unclean_by_settings
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionReassignment,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage, TopicImage

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
            is_unclean = unclean_by_settings(image, topic.name)
            if wanted.cancel:
                after = _cancelled(known, topic.name, image.eligible_epochs, is_unclean)
            else:
                _check(image, known, wanted.replicas, request.allow_replication_factor_change)
                after = _begun(known, list(wanted.replicas), image.eligible_epochs, is_unclean)
        except KafkaError as error:
            results.append(failure(error))
            continue
        if after is not known:
            changed[place] = after
        results.append(ResourceResult())
    records = tuple(partition_entry(partition) for partition in changed.values())
    return Decision(records, AlterPartitionReassignmentsResponse(results=results))


def finished(
    partition: PartitionRecord, eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord | None:
    """The partition after its reassignment, in the same change; None while the reassignment has to go on.

    All that it adds must be in sync, and where it leaves fewer replicas than there were, all that stay.
    """
    adding, removing = partition.adding_replicas, partition.removing_replicas
    if not adding and not removing:
        return None
    target = [replica for replica in partition.replicas if replica not in removing]
    isr = [replica for replica in partition.isr if replica not in removing]
    needed = target if len(adding) < len(removing) else adding
    if not isr or not target or not set(needed) <= set(isr):
        return None
    return _moved(partition, target, isr, eligible, is_unclean)


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


def _begun(
    known: PartitionRecord, target: list[int], eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord:
    """The partition on its way to `target`, or there already; `known` itself when nothing changes."""
    removing = sorted(set(known.replicas) - set(target))
    adding = sorted(set(target) - set(known.replicas))
    # Those that an earlier reassignment was adding and this one wants as well are still to come.
    adding += [replica for replica in known.adding_replicas if replica in target and replica not in known.isr]
    after = PartitionRecord()
    after.CopyFrom(known)
    after.replicas[:] = [*target, *removing]
    after.adding_replicas[:] = sorted(adding)
    after.removing_replicas[:] = removing
    after.partition_epoch += 1
    done = finished(after, eligible, is_unclean)
    if done is not None:
        return done
    after.partition_epoch -= 1
    if after == known:
        return known
    after.partition_epoch += 1
    return after


def _cancelled(
    known: PartitionRecord, topic: str, eligible: Container[int], is_unclean: IsUnclean
) -> PartitionRecord:
    """The partition with the replicas that it had before its reassignment."""
    if not known.adding_replicas and not known.removing_replicas:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    target = [replica for replica in known.replicas if replica not in known.adding_replicas]
    isr = [replica for replica in known.isr if replica not in known.adding_replicas]
    if not isr:
        if not is_unclean():
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {topic}:{known.partition} because it would require an "
                "unclean leader election.",
            )
        isr = target[:1]
    after = PartitionRecord()
    after.CopyFrom(known)
    after.partition_epoch += 1
    return _moved(after, target, isr, eligible, is_unclean)


def _moved(
    partition: PartitionRecord,
    target: Sequence[int],
    isr: Collection[int],
    eligible: Container[int],
    is_unclean: IsUnclean,
) -> PartitionRecord:
    """The partition with exactly these replicas, under a new leader epoch if any is gone; the partition epoch stays."""
    after = PartitionRecord()
    after.CopyFrom(partition)
    after.replicas[:] = target
    after.isr[:] = [replica for replica in target if replica in isr]
    del after.adding_replicas[:]
    del after.removing_replicas[:]
    candidates = [replica for replica in after.isr if replica in eligible]
    if partition.leader in candidates:
        leader = partition.leader
    elif candidates:
        leader = candidates[0]
    else:
        leader = next((replica for replica in target if replica in eligible and is_unclean()), NO_LEADER)
        if leader != NO_LEADER:
            after.isr[:] = [leader]
    after.leader = leader
    if leader != partition.leader or len(target) < len(partition.replicas):
        after.leader_epoch += 1
    return after
