"""Metadata (key 3): brokers, topics, partitions and their leaders.

v1 adds rack, controller and "no topics" as an empty list (in v0 that means all), and shows replicas whose brokers are
away, which v0 leaves out with an error; v4 the client's say on auto-creation,
v5 offline replicas, v7 leader epochs, v8-10 authorized operations, v10 topic ids, v12 topics by id alone, v13 a
top-level error.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.gateway.inside.topic_creation import create_missing_topics
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.image import NO_LEADER, MetadataImage, TopicImage
from barnabas.metadata.leaders import NO_LEADER_TO_SHOW
from barnabas.metadata.topic_names import topic_name_problem

_BY_ID_FROM: Final = 12
_IDS_ASKED_BUT_NOT_ANSWERED: Final = (10, 11)
"""Versions that have room for ids in the request while the answer needs names: a request with an id is refused."""


async def handle(request: Request) -> Answer:
    request.parts.sending_away.on_asked(request.who)
    wanted = request.body.topics
    if request.version in _IDS_ASKED_BUT_NOT_ANSWERED and wanted:
        for topic in wanted:
            if topic.name is None or topic.topic_id is not None:
                raise KafkaError(ErrorCode.invalid_request, f"Name topics, or use version {_BY_ID_FROM}.")
    if wanted is None or (request.version == 0 and not wanted):
        image = request.image
        topics = [_describe(request, image, topic) for _, topic in sorted(image.topics.items())]
    elif request.version >= _BY_ID_FROM and any(topic.topic_id for topic in wanted):
        image = request.image
        ids = dict.fromkeys(topic.topic_id for topic in wanted)
        topics = [_by_id(request, image, topic_id) for topic_id in ids]
    else:
        failures = await _create_missing(request)
        image = request.image
        # A topic that is asked for twice is answered once, as in Kafka.
        names = dict.fromkeys(topic.name for topic in wanted)
        topics = [_named(request, image, name, failures) for name in names]
    return {
        "brokers": [endpoint._asdict() for endpoint in request.brokers_to_show(image).values()],
        "cluster_id": image.cluster_id,
        "controller_id": min(request.brokers(image), default=-1),
        "topics": topics,
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS
            if request.get("include_cluster_authorized_operations", False)
            else NOT_ASKED_FOR
        ),
    }


async def _create_missing(request: Request) -> dict[str, ErrorCode]:
    """Create the topics that are not there, where broker and client both allow it; returns the failures."""
    image = request.image
    missing = {
        topic.name
        for topic in request.body.topics
        if topic.name is not None and topic.name not in image.topics
    }
    legal = sorted(name for name in missing if topic_name_problem(name) is None)
    failures = dict.fromkeys(missing.difference(legal), ErrorCode.invalid_topic_exception)
    allowed = request.get("allow_auto_topic_creation", True) and auto_creation_enabled(image)
    if legal and allowed:
        most = limits.AUTO_CREATED_TOPICS_MAX
        failures |= await create_missing_topics(request.parts, legal[:most])
        failures |= dict.fromkeys(legal[most:], ErrorCode.leader_not_available)  # with the next request
    return failures


def auto_creation_enabled(image: MetadataImage) -> bool:
    """The effective value of auto.create.topics.enable."""
    return bool(effective_broker_setting(image, "auto.create.topics.enable").value)


def _named(
    request: Request, image: MetadataImage, name: str | None, failures: dict[str, ErrorCode]
) -> dict[str, Any]:
    if name is None:
        return _missing(ErrorCode.unknown_topic_id, None)
    topic = image.topics.get(name)
    if topic is not None:
        return _describe(request, image, topic)
    # Kafka fills in the operations of whatever was asked for by its name, also where there is no such topic.
    missing = _missing(failures.get(name, ErrorCode.unknown_topic_or_partition), name)
    return missing | {"topic_authorized_operations": _topic_operations(request)}


def _by_id(request: Request, image: MetadataImage, topic_id: uuid.UUID | None) -> dict[str, Any]:
    """Once a request has an id, its names count for nothing: the Java client sends "" beside each id."""
    wanted = topic_id.bytes if topic_id else b""
    topic = image.topics_by_id.get(wanted)
    return _describe(request, image, topic) if topic else _missing(ErrorCode.unknown_topic_id, None, wanted)


def _missing(code: ErrorCode, name: str | None, topic_id: bytes = b"") -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED_FOR,
    }


def _describe(request: Request, image: MetadataImage, topic: TopicImage) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [_partition(request, image, record) for record in topic.partitions],
        "topic_authorized_operations": _topic_operations(request),
    }


def _topic_operations(request: Request) -> int:
    return TOPIC_OPERATIONS if request.get("include_topic_authorized_operations", False) else NOT_ASKED_FOR


def _partition(request: Request, image: MetadataImage, record: PartitionRecord) -> dict[str, Any]:
    described = describe_partition(request, image, record)
    if request.version > 0:
        return described
    there = [node for node in record.replicas if node in image.nodes and not image.nodes[node].fenced]
    if len(there) < len(record.replicas) and record.leader != NO_LEADER:
        described["error_code"] = ErrorCode.replica_not_available
    described["replica_nodes"] = there
    described["isr_nodes"] = [node for node in record.isr if node in there]
    return described


def describe_partition(request: Request, image: MetadataImage, record: PartitionRecord) -> dict[str, Any]:
    """A partition as Metadata and DescribeTopicPartitions show it."""
    said = record.offline_replicas[:]
    offline = [
        node
        for node in record.replicas
        if node not in image.nodes or image.nodes[node].fenced or node in said
    ]
    return {
        "error_code": NO_LEADER_TO_SHOW if record.leader == NO_LEADER else ErrorCode.none,
        "partition_index": record.partition,
        "leader_id": request.shown_leader(image, record.leader),
        "leader_epoch": record.leader_epoch,
        "replica_nodes": record.replicas,
        "isr_nodes": record.isr,
        "offline_replicas": offline,
    }


HANDLER = Handler(api_key=3, versions=(0, 13), handle=handle)
