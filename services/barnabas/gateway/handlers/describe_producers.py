"""DescribeProducers (key 61): the producers that a partition remembers, from its leader (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.inside.by_leader import PartitionRef, call_leaders
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_link import StorageLink
from barnabas.messages.storage_pb2 import DescribeProducersRequest, PartitionOfTopic, PartitionProducers
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS
from barnabas.metadata.topic_names import topic_name_problem
from barnabas.wire.response_slices import Rows


async def handle(request: Request) -> Answer:
    image, topics = request.image, request.body.topics
    async with Gathered(request) as gathered:
        found = await _find(request, gathered)
        asked = ((topic.name, index) for topic in topics for index in topic.partition_indexes)
        gathered.check_repeated({key: got.ByteSize() for key, got in found.items()}, asked)
        body = {"topics": [_topic(image, topic, found) for topic in topics]}
        return await encode_answer(request, body, limits.DESCRIBED_BYTES_MAX)


async def _find(request: Request, gathered: Gathered) -> dict[tuple[str, int], PartitionProducers]:
    """The producers of each partition that is asked for; what is asked for twice is found once. Where there is no room
    for more, it is as if nobody led the partition: clients ask again.
    """
    wanted = dict.fromkeys(
        (topic.name, index) for topic in request.body.topics for index in topic.partition_indexes
    )
    found: dict[tuple[str, int], PartitionProducers] = {}
    refs = [PartitionRef(name, None, index, index) for name, index in wanted]
    for start in range(0, len(refs), limits.PRODUCERS_AT_A_TIME):
        some = refs[start : start + limits.PRODUCERS_AT_A_TIME]
        await gathered.may_go_on()
        if gathered.is_full:
            results = [_failed(NOBODY_LEADS)] * len(some)
        else:
            results = await call_leaders(request, some, _message, _ask, _failed)
            gathered.add(sum(result.ByteSize() for result in results))
        found |= {(ref.topic_name or "", ref.partition): got for ref, got in zip(some, results, strict=True)}
        await asyncio.sleep(0)  # a node in this process is not waited for
    return found


def _topic(
    image: MetadataImage, topic: Any, found: Mapping[tuple[str, int], PartitionProducers]
) -> dict[str, Any]:
    code, message = _problem(image, topic.name)
    indexes = topic.partition_indexes
    partitions = (_answer(index, code, message, found[topic.name, index]) for index in indexes)
    return {"name": topic.name, "partitions": Rows(len(indexes), partitions)}


async def _ask(link: StorageLink, asked: list[PartitionOfTopic], seconds: float) -> list[PartitionProducers]:
    message = DescribeProducersRequest(partitions=asked)
    response = await link.DescribeProducers(message, timeout=seconds)
    return list(response.results)


def _message(topic_id: bytes, index: int) -> PartitionOfTopic:
    return PartitionOfTopic(topic_id=topic_id, partition=index)


def _failed(code: ErrorCode) -> PartitionProducers:
    return PartitionProducers(error_code=code)


def _problem(image: MetadataImage, name: str) -> tuple[ErrorCode, str | None]:
    """What is wrong with the topic as a whole; NONE and no message where nothing is."""
    problem = topic_name_problem(name)
    if problem is not None:
        return ErrorCode.invalid_topic_exception, problem
    if name not in image.topics:
        return ErrorCode.unknown_topic_or_partition, f"There is no topic {name}."
    return ErrorCode.none, None


def _answer(index: int, code: ErrorCode, message: str | None, result: PartitionProducers) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code or client_code(result.error_code),
        "error_message": message,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_transaction_start_offset,
            }
            for producer in result.producers
        ],
    }


HANDLER = Handler(
    api_key=61,
    versions=(0, 0),
    handle=handle,
    unanswered=NOBODY_LEADS,
    lacks="The partition's leader answers, whichever broker is asked.",
)
