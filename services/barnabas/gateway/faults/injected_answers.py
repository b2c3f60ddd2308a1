"""What a fault needs to know of a request (which topics and groups it names) and the error that it answers with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.gateway.answers.with_error import error_answer
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.fetch_sessions import NO_SESSION, PartitionKey, TopicKey
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.faults.rule import Subject
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.wire.fetch import API_KEY as FETCH
from barnabas.wire.fetch import TOPIC_ID_FROM, FetchedPartition, encode_fetch_response
from barnabas.wire.responses import encode_response
from barnabas.wire.schema import api_name

_GROUP_KEY: Final = 0

_WHOLE_FETCH_ERRORS: Final = (
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
)
"""Errors of a fetch as a whole; clients look for all others at the partitions."""


def subject_of(request: Request) -> Subject:
    """What rules look at in `request`."""
    header = request.header
    return Subject(
        api_name(header.api_key),
        header.client_id or "",
        frozenset(_topics(request)),
        frozenset(_groups(request.body)),
    )


def fault_answer(request: Request, code: ErrorCode) -> Pieces:
    """The answer to `request` in which everything that it asked for failed with `code`."""
    header = request.header
    if header.api_key == FETCH and code not in _WHOLE_FETCH_ERRORS:
        return _failed_fetch(request, code)
    body = error_answer(header.api_key, header.api_version, request.body, code, "injected fault")
    if body is None:  # Produce with acks=0: only the end of the connection tells the client
        raise CloseConnection(f"injected {code.name.upper()}, for which there is no answer")
    return encode_response(header.api_key, header.api_version, header.correlation_id, body)


def _failed_fetch(request: Request, code: ErrorCode) -> Pieces:
    """A fetch whose partitions all failed, those of its session too; the session is over with it."""
    header, body, by_id = request.header, request.body, request.version >= TOPIC_ID_FROM
    keys: dict[PartitionKey, None] = {
        (_topic_key(topic), partition.partition): None
        for topic in body.topics
        for partition in topic.partitions
    }
    session_id, epoch = request.get("session_id", NO_SESSION), request.get("session_epoch", -1)
    if session_id != NO_SESSION:
        sessions = request.parts.fetch_sessions
        try:
            if epoch > 0:
                now_ms = request.parts.clock.now_ms()
                session = sessions.use(session_id, epoch, uses_topic_ids=by_id, now_ms=now_ms)
                keys |= dict.fromkeys(session.partitions)
        except KafkaError as error:
            return encode_fetch_response(request.version, header.correlation_id, [], error_code=error.code)
        sessions.close(session_id)
    topics: dict[TopicKey, list[FetchedPartition]] = {}
    for topic, partition in keys:
        failed = FetchedPartition(partition, code, -1, -1, -1, b"", None, None, None)
        topics.setdefault(topic, []).append(failed)
    return encode_fetch_response(request.version, header.correlation_id, list(topics.items()))


def _topic_key(topic: Any) -> TopicKey:
    if hasattr(topic, "topic"):
        return str(topic.topic)
    return topic.topic_id.bytes if topic.topic_id else bytes(16)


def _topics(request: Request) -> Iterator[str]:
    """Every topic that the request names, by name or id, or that its fetch session holds."""
    body, by_id = request.body, request.image.topics_by_id
    for field in ("topic_names", "subscribed_topic_names"):
        yield from getattr(body, field, None) or ()
    for element in _elements(body):
        name = getattr(element, "name", None) or getattr(element, "topic", None)
        name = name or getattr(element, "topic_name", None)
        topic_id = getattr(element, "topic_id", None)
        if isinstance(name, str):
            yield name
        elif topic_id is not None and topic_id.bytes in by_id:
            yield by_id[topic_id.bytes].name
    for resource in getattr(body, "resources", ()) or ():
        if resource.resource_type == TOPIC_RESOURCE:
            yield resource.resource_name
    session = request.parts.fetch_sessions.peek(request.get("session_id", NO_SESSION))
    for key, _ in session.partitions if session else ():
        if isinstance(key, str):
            yield key
        elif key in by_id:
            yield by_id[key].name


def _elements(body: Any) -> Iterator[Any]:
    """The structures that stand for topics, wherever the API has them."""
    for field in ("topics", "topic_data", "v3_and_below_topics", "topic_partitions"):
        yield from getattr(body, field, None) or ()
    for field in ("groups", "transactions", "markers", "dirs"):
        for outer in getattr(body, field, None) or ():
            yield from getattr(outer, "topics", None) or ()


def _groups(body: Any) -> Iterator[str]:
    """Every group that the request names."""
    group_id = getattr(body, "group_id", None)
    if group_id is not None:
        yield group_id
    for field in ("groups", "groups_names", "group_ids"):
        for group in getattr(body, field, None) or ():
            yield group if isinstance(group, str) else group.group_id
    if getattr(body, "key_type", None) == _GROUP_KEY:
        yield from getattr(body, "coordinator_keys", ())
    if getattr(body, "key_type", _GROUP_KEY) == _GROUP_KEY and hasattr(body, "key"):
        yield body.key
