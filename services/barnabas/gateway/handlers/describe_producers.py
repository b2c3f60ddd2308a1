"""DescribeProducers (key 61): the producers that a partition remembers, from its leader (KIP-664)."""

from __future__ import annotations

from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.inside.by_leader import PartitionRef, call_leaders
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_link import StorageLink
from barnabas.messages.storage_pb2 import DescribeProducersRequest, PartitionOfTopic, PartitionProducers
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS
from barnabas.metadata.topic_names import topic_name_problem


async def handle(request: Request) -> Answer:
    refs = [
        PartitionRef(topic.name, None, index, index)
        for topic in request.body.topics
        for index in topic.partition_indexes
    ]
    results = iter(await call_leaders(request, refs, _message, _ask, _failed))
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _answer(index, *_problem(request.image, topic.name), next(results))
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.body.topics
        ]
    }


async def _ask(link: StorageLink, asked: list[PartitionOfTopic]) -> list[PartitionProducers]:
    message = DescribeProducersRequest(partitions=asked)
    response = await link.DescribeProducers(message, timeout=limits.CALL_TIMEOUT_SECONDS)
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
