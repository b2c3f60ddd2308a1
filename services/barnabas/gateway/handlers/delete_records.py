"""DeleteRecords (key 21): moves the start of logs forward, at the leaders, and waits for replicas (KIP-107).

v2 is flexible.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.inside.by_leader import PartitionRef, call_leaders
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_link import StorageLink
from barnabas.messages.storage_pb2 import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResult
from barnabas.metadata.leaders import NOBODY_LEADS


async def handle(request: Request) -> Answer:
    timeout_ms = max(0, milliseconds(request.body.timeout))

    async def ask(
        link: StorageLink, asked: list[DeleteRecordsPartition], seconds: float
    ) -> list[DeleteRecordsResult]:
        message = DeleteRecordsRequest(partitions=asked, timeout_ms=timeout_ms)
        response = await link.DeleteRecords(message, timeout=seconds)
        return list(response.results)

    refs = [
        PartitionRef(topic.name, None, partition.partition_index, partition)
        for topic in request.body.topics
        for partition in topic.partitions
    ]
    # Never twice: what is deleted up to the high watermark may be more the second time.
    results = iter(await call_leaders(request, refs, _message, ask, _failed, calls_max=1))
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_answer(partition, next(results)) for partition in topic.partitions],
            }
            for topic in request.body.topics
            if topic.partitions  # Kafka does not answer for a topic without them
        ]
    }


def _message(topic_id: bytes, partition: Any) -> DeleteRecordsPartition:
    return DeleteRecordsPartition(
        topic_id=topic_id, partition=partition.partition_index, before_offset=partition.offset
    )


def _failed(code: ErrorCode) -> DeleteRecordsResult:
    return DeleteRecordsResult(error_code=code, low_watermark=-1)


def _answer(partition: Any, result: DeleteRecordsResult) -> dict[str, Any]:
    return {
        "partition_index": partition.partition_index,
        "low_watermark": result.low_watermark,
        "error_code": client_code(result.error_code),
    }


HANDLER = Handler(api_key=21, versions=(0, 2), handle=handle, unanswered=NOBODY_LEADS)
