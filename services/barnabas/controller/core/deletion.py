"""DeleteTopics: by name or by id.

A deleted topic leaves a record that says so, for storage nodes delete data on that word alone. Nodes that are away for
longer than the record is kept hold what they have of the topic as stray for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barnabas.controller import limits
from barnabas.controller.core.decision import Decision, failure
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages.controller_pb2 import (
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ResourceResult,
    TopicRef,
)
from barnabas.messages.metadata_pb2 import DeletedTopicRecord, MetadataRecord
from barnabas.metadata.image import (
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
    TopicImage,
    config_key,
    deleted_topic_key,
    partition_key,
    topic_key,
)


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, *, now_ms: int, enabled: bool = True
) -> Decision[DeleteTopicsResponse]:
    """Decide on every topic of the request by itself, at `now_ms` since 1970. `enabled` is delete.topic.enable."""
    times = Counter((ref.name, ref.topic_id) for ref in request.topics)
    targets = Counter(_target(image, ref) for ref in request.topics)
    deleted: dict[bytes, TopicImage] = {}
    results = []
    for ref in request.topics:
        try:
            if times[ref.name, ref.topic_id] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "Duplicate topic name." if ref.name else "Duplicate topic id.",
                )
            if not enabled:
                raise KafkaError(ErrorCode.topic_deletion_disabled, "Set delete.topic.enable to true.")
            topic = _find(image, ref)
            if topic.name == TRANSACTION_STATE_TOPIC and topic.internal:
                # Decided transactions whose partitions are still being told would stay open in them for good.
                raise KafkaError(
                    ErrorCode.invalid_topic_exception,
                    f"{topic.name} is the cluster's own and cannot be deleted.",
                )
            if targets[topic.topic_id] > 1:
                twice = KafkaError(
                    ErrorCode.invalid_request,
                    f"The topic {topic.name} is named twice, by its name and by its id.",
                )
                results.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id, result=failure(twice)))
                continue
            deleted[topic.topic_id] = topic
            result = DeletedTopic(name=topic.name, topic_id=topic.topic_id, result=ResourceResult())
        except KafkaError as error:
            result = DeletedTopic(name=ref.name, topic_id=ref.topic_id, result=failure(error))
        results.append(result)
    records: list[MetadataRecord] = []
    for topic in deleted.values():
        records += _deletions(image, topic, now_ms)
    if deleted:
        records += _forgotten(image, len(deleted), now_ms)
    prefixes = tuple(f"partitions/{topic_id.hex()}/" for topic_id in deleted)
    return Decision(tuple(records), DeleteTopicsResponse(topics=results), prefixes)


def _target(image: MetadataImage, ref: TopicRef) -> bytes:
    """The id of the topic that is meant; empty where there is none."""
    try:
        return _find(image, ref).topic_id
    except KafkaError:
        return b""


def _find(image: MetadataImage, ref: TopicRef) -> TopicImage:
    if ref.name and ref.topic_id:
        raise KafkaError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if ref.name:
        topic = image.topics.get(ref.name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{ref.name}' does not exist.")
        return topic
    if not ref.topic_id:
        raise KafkaError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    topic = image.topics_by_id.get(ref.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id, "No topic has this id.")
    return topic


def _deletions(image: MetadataImage, topic: TopicImage, now_ms: int) -> list[MetadataRecord]:
    said = DeletedTopicRecord(topic_id=topic.topic_id, name=topic.name, deleted_at_ms=now_ms)
    records = [
        MetadataRecord(key=topic_key(topic.name)),
        MetadataRecord(key=deleted_topic_key(topic.topic_id), deleted_topic=said),
    ]
    if (TOPIC_RESOURCE, topic.name) in image.configs:
        records.append(MetadataRecord(key=config_key(TOPIC_RESOURCE, topic.name)))
    records += [
        MetadataRecord(key=partition_key(topic.topic_id, index)) for index in range(len(topic.partitions))
    ]
    return records


def _forgotten(image: MetadataImage, added: int, now_ms: int) -> Iterator[MetadataRecord]:
    """Deletions of the records that are too old, or too many once `added` come to them."""
    known = sorted(image.deleted_topics.values(), key=lambda said: said.deleted_at_ms)
    too_many = len(known) + added - limits.DELETED_TOPICS_MAX
    for rank, said in enumerate(known):
        if rank < too_many or said.deleted_at_ms < now_ms - limits.DELETED_TOPIC_KEPT_MS:
            yield MetadataRecord(key=deleted_topic_key(said.topic_id))
