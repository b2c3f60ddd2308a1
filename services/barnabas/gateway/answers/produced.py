"""The answer to a Produce request, from what became of each of its batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from barnabas.gateway.clients.sequence_gaps import Place
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import PartitionAppend, PartitionAppendResult
from barnabas.metadata.leaders import LEADER_ERRORS, NOBODY_LEADS, current_leader
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


class Produced:
    """Owns what became of the batches of one Produce request, by place in it, as far as that is known."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._results: dict[Place, ProducedPartition] = {}

    def __bool__(self) -> bool:
        return bool(self._results)

    def __contains__(self, place: object) -> bool:
        return place in self._results

    def failures(self, places: Iterable[Place] | None = None) -> dict[Place, ErrorCode]:
        """The error codes of what was refused, of all or at these `places`."""
        results = self._results
        return {
            place: ErrorCode(results[place].error_code)
            for place in (results if places is None else places)
            if place in results and results[place].error_code
        }

    def are_all(self, code: ErrorCode) -> bool:
        """Whether there is something, and nothing but this code."""
        return bool(self._results) and all(each.error_code == code for each in self._results.values())

    def refuse(self, place: Place, partition: int, code: ErrorCode) -> None:
        """It was not written, as far as is known."""
        self._results[place] = _unwritten(partition, code)

    def refuse_unled(self, place: Place, name_or_id: str | bytes, partition: int) -> None:
        """It was not written, as nobody leads the partition, or another one than who was asked: the client is told who
        does by now (KIP-951).
        """
        told = self._current_leader(name_or_id, partition)
        self._results[place] = _unwritten(partition, NOBODY_LEADS)._replace(current_leader=told)

    def refuse_all(self, code: ErrorCode, message: str = "") -> None:
        """All that was not refused for another reason."""
        for place, data in zip(places_of(self._request.body), self._data(), strict=True):
            self._results.setdefault(place, _unwritten(data.index, code, message))

    def _data(self) -> Iterator[Any]:
        return (data for topic in self._request.body.topic_data for data in topic.partition_data)

    def take(
        self, place: Place, sent: PartitionAppend, got: PartitionAppendResult, code: ErrorCode, message: str
    ) -> None:
        """What its leader says, as `code` and `message` for the client."""
        self._results[place] = ProducedPartition(
            sent.partition,
            code,
            got.base_offset,
            got.log_append_time_ms,
            got.log_start_offset,
            message or None,
            self._current_leader(sent.topic_id, sent.partition) if code in LEADER_ERRORS else None,
            [(error.batch_index, error.message) for error in got.record_errors] if code else (),
        )

    def _current_leader(self, name_or_id: str | bytes, partition: int) -> tuple[int, int] | None:
        image = self._request.image
        leads = current_leader(image, name_or_id, partition)
        return None if leads is None else (self._request.shown_leader(image, leads[0]), leads[1])

    def encode(self, throttle_time_ms: int) -> bytes:
        """The whole answer, once every place has its result."""
        return encode_produced(self._request, self._results, throttle_time_ms)


def _unwritten(partition: int, code: ErrorCode, message: str = "") -> ProducedPartition:
    return ProducedPartition(partition, code, -1, -1, -1, message or None)


def encode_produced(
    request: Request, results: Mapping[Place, ProducedPartition], throttle_time_ms: int = 0
) -> bytes:
    """The whole answer. As in Kafka, a topic that is named twice is in it once, one without partitions not at all."""
    by_id = request.version >= TOPIC_ID_FROM
    topics: dict[str | bytes, list[ProducedPartition]] = {}
    for topic_index, topic in enumerate(request.body.topic_data):
        key = (topic.topic_id.bytes if topic.topic_id else bytes(16)) if by_id else topic.name
        for partition_index in range(len(topic.partition_data)):
            topics.setdefault(key, []).append(results[topic_index, partition_index])
    return encode_produce_response(
        request.version,
        request.header.correlation_id,
        list(topics.items()),
        _endpoints(request, results),
        throttle_time_ms,
    )


def _endpoints(request: Request, results: Mapping[Place, ProducedPartition]) -> list[LeaderEndpoint]:
    """Those of the leaders that `results` name, so that the client need not ask (KIP-951)."""
    leaders = {result.current_leader[0] for result in results.values() if result.current_leader}
    if not leaders:
        return []
    brokers = request.brokers(request.image)
    return [LeaderEndpoint(*brokers[leader]) for leader in sorted(leaders) if leader in brokers]
