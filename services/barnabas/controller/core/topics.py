"""CreateTopics: names, numbers, assignments and settings checked, partitions placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.controller import limits
from barnabas.controller.core.assignments import check_replication_factor, manual_replicas, new_partitions
from barnabas.controller.core.coordinator_assignment import with_first_owners
from barnabas.controller.core.cordons import uncordoned_nodes
from barnabas.controller.core.decision import (
    ClusterDefaults,
    Decision,
    failure,
    partition_entry,
)
from barnabas.controller.core.internal_topics import internal_replication_factor
from barnabas.controller.core.placement import place_replicas
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages.controller_pb2 import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    NewTopic,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord, TopicRecord
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    MetadataImage,
    config_key,
    topic_key,
)
from barnabas.metadata.topic_names import check_collision, check_topic_name
from barnabas.metadata.topic_settings import validate_topic_settings

BROKER_DEFAULT: Final = -1
"""A number that the request leaves to the cluster."""


_METADATA_LOG: Final = "__cluster_metadata"
"""The log of Kafka's own controllers: there is none here, and clients know the name as taken."""


@dataclass(slots=True)
class _Draft:
    """What the request has come to so far: earlier topics of it count for names, places and limits."""

    image: MetadataImage
    defaults: ClusterDefaults
    new_topic_id: Callable[[], bytes]
    names: set[str]
    partitions_before: int
    partitions_created: int = 0
    records: list[MetadataRecord] = field(default_factory=list)


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    defaults: ClusterDefaults,
    new_topic_id: Callable[[], bytes],
) -> Decision[CreateTopicsResponse]:
    """Decide on every topic of the request by itself. `new_topic_id` makes 16 random bytes."""
    times = Counter(topic.name for topic in request.topics)
    partitions_before = sum(len(topic.partitions) for topic in image.topics.values())
    draft = _Draft(image, defaults, new_topic_id, set(image.topics), partitions_before)
    results = []
    # A topic that is named twice is refused, once.
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            result = _create(draft, topic)
        except KafkaError as error:
            result = CreatedTopic(name=topic.name, result=failure(error))
        results.append(result)
    records = () if request.validate_only else tuple(draft.records)
    return Decision(records, CreateTopicsResponse(topics=results))


def _create(draft: _Draft, topic: NewTopic) -> CreatedTopic:
    check_topic_name(topic.name)
    if topic.name == _METADATA_LOG:
        raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {topic.name} is prohibited.")
    if topic.name in draft.names:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
    check_collision(topic.name, draft.names)
    settings = _settings(draft, topic)
    replicas = _replicas(draft, topic)
    if draft.partitions_created + len(replicas) > limits.PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: at most {limits.PARTITIONS_PER_REQUEST_MAX}.",
        )
    topic_id = draft.new_topic_id()
    partitions = new_partitions(draft.image, topic_id, 0, replicas)
    internal = topic.name in INTERNAL_TOPICS
    if internal:
        partitions = with_first_owners(draft.image, partitions)
    record = TopicRecord(
        name=topic.name, topic_id=topic_id, partition_count=len(partitions), internal=internal
    )
    draft.records += [partition_entry(partition) for partition in partitions]
    if settings:
        key = config_key(TOPIC_RESOURCE, topic.name)
        draft.records.append(MetadataRecord(key=key, config=ConfigRecord(values=settings)))
    draft.records.append(MetadataRecord(key=topic_key(topic.name), topic=record))
    draft.names.add(topic.name)
    draft.partitions_created += len(partitions)
    return CreatedTopic(
        name=topic.name,
        result=ResourceResult(),
        topic_id=topic_id,
        partition_count=len(partitions),
        replication_factor=len(replicas[0]),
    )


def _settings(draft: _Draft, topic: NewTopic) -> dict[str, str]:
    nulls = [entry.name for entry in topic.configs if not entry.HasField("value")]
    if nulls:
        raise KafkaError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(nulls)}"
        )
    # Of a setting that is given twice the last counts, as in Kafka.
    settings = {entry.name: entry.value for entry in topic.configs}
    validate_topic_settings(settings)
    if topic.internal and topic.name in INTERNAL_TOPICS:
        settings = _settings_of_internal(topic.name, draft.defaults) | settings
    return settings


def _settings_of_internal(name: str, defaults: ClusterDefaults) -> dict[str, str]:
    """What Kafka's brokers give an internal topic that they create."""
    if name == GROUP_METADATA_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(defaults.offsets_topic_segment_bytes),
        }
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(defaults.transaction_state_log_min_isr),
        "segment.bytes": str(defaults.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def _partitions_of_internal(name: str, defaults: ClusterDefaults) -> int:
    if name == GROUP_METADATA_TOPIC:
        return defaults.offsets_topic_num_partitions
    return defaults.transaction_state_log_num_partitions


def _replicas(draft: _Draft, topic: NewTopic) -> Sequence[Sequence[int]]:
    if topic.assignments:
        if topic.replication_factor != BROKER_DEFAULT:
            raise _not_both("replication factor")
        if topic.partition_count != BROKER_DEFAULT:
            raise _not_both("numPartitions")
        return manual_replicas(draft.image, topic.assignments, 0, None)
    factor = topic.replication_factor
    if factor == BROKER_DEFAULT:
        factor = draft.defaults.default_replication_factor
        if topic.internal and topic.name in INTERNAL_TOPICS:
            factor = internal_replication_factor(draft.image, topic.name, draft.defaults)
    check_replication_factor(factor)
    count = topic.partition_count
    if count == BROKER_DEFAULT:
        count = draft.defaults.num_partitions
        if topic.internal and topic.name in INTERNAL_TOPICS:
            count = _partitions_of_internal(topic.name, draft.defaults)
    if count < 1:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value: use 1 or more, or -1 for the default.",
        )
    if count > limits.PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: at most {limits.PARTITIONS_PER_REQUEST_MAX}.",
        )
    start = draft.partitions_before + draft.partitions_created
    return place_replicas(uncordoned_nodes(draft.image), count, factor, start)


def _not_both(what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_request,
        f"A manual partition assignment was specified, but {what} was not set to -1.",
    )
