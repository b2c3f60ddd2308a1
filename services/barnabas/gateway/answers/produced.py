"""The answer to a Produce request, from what became of each of its batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.gateway.clients.sequence_gaps import Place
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.produce import (
    TOPIC_ID_FROM,
    LeaderEndpoint,
    ProducedPartition,
    encode_produce_response,
)


def places_of(body: Any) -> Iterator[Place]:
    """Where the batches of a Produce request are in it."""
    return (
        (topic_index, partition_index)
        for topic_index, topic in enumerate(body.topic_data)
        for partition_index in range(len(topic.partition_data))
    )


def unwritten(partition: int, code: ErrorCode, message: str = "") -> ProducedPartition:
    """What is told of a batch that was not written, as far as is known."""
    return ProducedPartition(partition, code, -1, -1, -1, message or None)


def encode_produced(request: Request, results: Mapping[Place, ProducedPartition]) -> bytes:
    """The whole answer. As in Kafka, a topic that is named twice is in it once, one without partitions not at all."""
    by_id = request.version >= TOPIC_ID_FROM
    topics: dict[str | bytes, list[ProducedPartition]] = {}
    for topic_index, topic in enumerate(request.body.topic_data):
        key = (topic.topic_id.bytes if topic.topic_id else bytes(16)) if by_id else topic.name
        for partition_index in range(len(topic.partition_data)):
            topics.setdefault(key, []).append(results[topic_index, partition_index])
    return encode_produce_response(
        request.version, request.header.correlation_id, list(topics.items()), _endpoints(request, results)
    )


def _endpoints(request: Request, results: Mapping[Place, ProducedPartition]) -> list[LeaderEndpoint]:
    """Those of the leaders that `results` name, so that the client need not ask (KIP-951)."""
    leaders = {result.current_leader[0] for result in results.values() if result.current_leader}
    if not leaders:
        return []
    brokers = request.brokers(request.image)
    return [LeaderEndpoint(*brokers[leader]) for leader in sorted(leaders) if leader in brokers]
