"""CreatePartitions: topics grow, they never shrink. Internal ones do neither.

A group belongs to the partition that the hash of its id names among those that there are: with one more, most groups
would be looked for where nothing of theirs is.
"""

from __future__ import annotations

from collections import Counter

from barnabas.controller import limits
from barnabas.controller.core.assignments import manual_replicas, new_partitions
from barnabas.controller.core.cordons import uncordoned_nodes
from barnabas.controller.core.decision import (
    Decision,
    failure,
    partition_entry,
)
from barnabas.controller.core.placement import place_replicas
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    NewPartitions,
    ReplicaAssignment,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import MetadataRecord, TopicRecord
from barnabas.metadata.image import MetadataImage, TopicImage, topic_key


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest
) -> Decision[CreatePartitionsResponse]:
    """Decide on every topic of the request by itself."""
    times = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            records += _enlarge(image, topic)
            results.append(ResourceResult())
        except KafkaError as error:
            results.append(failure(error))
    stored = () if request.validate_only else tuple(records)
    return Decision(stored, CreatePartitionsResponse(results=results))


def _enlarge(image: MetadataImage, wanted: NewPartitions) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{wanted.name}' does not exist.")
    present = len(topic.partitions)
    if wanted.partition_count == present:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if wanted.partition_count < present:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.partition_count} would not be "
            "an increase.",
        )
    if topic.internal:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The number of partitions of {wanted.name} cannot be changed: what it holds is found by that number.",
        )
    added = wanted.partition_count - present
    if added > limits.PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: at most {limits.PARTITIONS_PER_REQUEST_MAX}.",
        )
    replicas = _replicas(image, topic, wanted, added)
    partitions = new_partitions(image, topic.topic_id, present, replicas)
    record = TopicRecord(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=wanted.partition_count,
    )
    entries = [partition_entry(partition) for partition in partitions]
    return [*entries, MetadataRecord(key=topic_key(topic.name), topic=record)]


def _replicas(image: MetadataImage, topic: TopicImage, wanted: NewPartitions, added: int) -> list[list[int]]:
    first = topic.partitions[0]
    factor = len(first.replicas) - len(first.adding_replicas)
    present = len(topic.partitions)
    if not wanted.assignments:
        return place_replicas(uncordoned_nodes(image), added, factor, _next_start(image, topic))
    if len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
            "were specified.",
        )
    numbered = [
        ReplicaAssignment(partition=present + assignment.partition, node_ids=assignment.node_ids)
        for assignment in wanted.assignments
    ]
    return manual_replicas(image, numbered, present, factor)


def _next_start(image: MetadataImage, topic: TopicImage) -> int:
    """Go on where the topic's last partition leads, so that its leaders stay even."""
    ids = list(image.eligible_epochs)
    last = topic.partitions[-1].replicas[0]
    return ids.index(last) + 1 if last in ids else len(topic.partitions)
