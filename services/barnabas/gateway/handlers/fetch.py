"""Fetch (key 1): record batches out of partitions.

v5 adds the log start offset, v7 incremental sessions (KIP-227), v9 leader epochs, v11 the client's rack, v12 the last
fetched epoch and divergence (KIP-595), v13 topic ids instead of names, v15 the replica state, v16 who leads (KIP-951).
Followers of a real Kafka cluster are not served: replica ids are ignored.

Where a leader is reached is not told, although v16 has a place for it. A broker moves from one gateway's endpoint to
another's as gateways come and go, and the Java client (4.3.1) compares brokers by their endpoints: told a newer one for
one partition here, it sends two fetches of the same session for that broker from then on, one with that partition and
one with its others, drops the answers to them as invalid, and reads next to nothing of the broker for minutes. Without
an endpoint it goes by that of its metadata, and asks anew where that has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from barnabas.gateway.clients.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    TopicKey,
    WantedPartition,
)
from barnabas.gateway.inside.fetch_read import FetchRead
from barnabas.gateway.isolation import known_isolation_level
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError
from barnabas.metadata.leaders import NOBODY_LEADS
from barnabas.wire.fetch import TOPIC_ID_FROM, FetchedPartition, encode_fetch_response

_SESSIONLESS_VERSION_MAX: Final = 6


async def handle(request: Request) -> Answer:
    known_isolation_level(request)
    try:
        session, wanted, is_full = _open_or_use_session(request)
    except KafkaError as error:
        request.times.count_error(error.code)
        return encode_fetch_response(
            request.version, request.header.correlation_id, [], error_code=error.code
        )
    read = FetchRead(request, wanted)
    found = await read.run()
    if is_full:
        # Clients take an answer for broken that leaves out a partition which they have named.
        found = [
            (key, read.not_answered(want) if got is None else got)
            for want, (key, got) in zip(wanted, found, strict=True)
        ]
    if session is not None:
        results = for_session(session, wanted, found, is_full=is_full)
    else:
        results = [(key, got) for key, got in found if got is not None]
    return encode_fetch_response(
        request.version,
        request.header.correlation_id,
        list(by_topic(results)),
        session_id=NO_SESSION if session is None else session.session_id,
    )


Results = list[tuple[PartitionKey, FetchedPartition]]


def _open_or_use_session(request: Request) -> tuple[FetchSession | None, list[WantedPartition], bool]:
    """(session if any, the partitions to read, whether the answer must name them all)."""
    body, sessions = request.body, request.parts.fetch_sessions
    # Of a partition that is named twice the last counts, as in Kafka.
    wanted = list({want.key: want for want in _wanted(request)}.values())
    session_id, epoch = request.get("session_id", NO_SESSION), request.get("session_epoch", FINAL_EPOCH)
    if request.version <= _SESSIONLESS_VERSION_MAX or (session_id == NO_SESSION and epoch == FINAL_EPOCH):
        return None, wanted, True
    by_id, now_ms = request.version >= TOPIC_ID_FROM, request.parts.clock.now_ms()
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(session_id)
        if epoch == FINAL_EPOCH:
            return None, wanted, True
        connection_id = request.client.connection_id
        opened = sessions.open(wanted, uses_topic_ids=by_id, now_ms=now_ms, connection_id=connection_id)
        return opened, wanted, True
    session = sessions.use(session_id, epoch, uses_topic_ids=by_id, now_ms=now_ms)
    forgotten = [
        (_topic_key(topic, by_id=by_id), partition)
        for topic in body.forgotten_topics_data
        for partition in topic.partitions
    ]
    sessions.update(session, wanted, forgotten)
    return session, list(session.partitions.values()), False


def _wanted(request: Request) -> Iterator[WantedPartition]:
    by_id = request.version >= TOPIC_ID_FROM
    for topic in request.body.topics:
        key = _topic_key(topic, by_id=by_id)
        for partition in topic.partitions:
            yield WantedPartition(
                key,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                # Any negative epoch means that the client knows none.
                max(-1, getattr(partition, "current_leader_epoch", -1)),
                getattr(partition, "last_fetched_epoch", -1),
            )


def _topic_key(topic: Any, *, by_id: bool) -> TopicKey:
    if by_id:
        return topic.topic_id.bytes if topic.topic_id else bytes(16)
    return str(topic.topic)


def for_session(
    session: FetchSession,
    wanted: list[WantedPartition],
    found: Sequence[tuple[PartitionKey, FetchedPartition | None]],
    *,
    is_full: bool,
) -> Results:
    """Leave out what the client of an incremental session knows already, and remember what it is told now.

    A partition of which nothing is known is left out as if it had no news, and asked for again with the next request.
    """
    told = []
    for want, (key, got) in zip(wanted, found, strict=True):
        want.was_late = got is None
        if got is None:
            continue
        offsets = (got.high_watermark, got.last_stable_offset, got.log_start_offset)
        has_news = (
            bool(got.records or got.error_code or got.diverging_epoch)
            or got.preferred_read_replica >= 0
            or offsets != want.told
        )
        if is_full or has_news:
            told.append((key, got))
        # An error is told again until it is gone.
        want.told = None if got.error_code else offsets
    session.move_to_end(key for key, got in told if got.records)
    return told


def by_topic(results: Iterable[tuple[PartitionKey, FetchedPartition]]) -> Iterator[Any]:
    """Group neighbouring partitions of a topic, keeping their order."""
    topic: TopicKey | None = None
    partitions: list[FetchedPartition] = []
    for (key, _), result in results:
        if key != topic:
            if partitions:
                yield topic, partitions
            topic, partitions = key, []
        partitions.append(result)
    if partitions:
        yield topic, partitions


HANDLER = Handler(
    api_key=1,
    versions=(4, 18),
    handle=handle,
    may_wait=True,
    unanswered=NOBODY_LEADS,
    lacks="Replica ids are ignored, but for that of a debugging consumer (kafka-replica-verification), and who leads "
    "is told without an endpoint.",
)
