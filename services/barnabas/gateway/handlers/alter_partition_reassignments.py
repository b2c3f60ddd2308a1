"""AlterPartitionReassignments (key 45): partitions shall have other replicas (KIP-455); one result per partition.

v1 lets the client insist that the replication factor stays (KIP-860).
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
)
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    PartitionReassignment,
    ResourceResult,
)


async def handle(request: Request) -> Answer:
    may_change_factor = request.get("allow_replication_factor_change", True)
    message = AlterPartitionReassignmentsRequest(
        partitions=[
            _wanted(topic.name, partition) for topic in request.body.topics for partition in topic.partitions
        ],
        allow_replication_factor_change=may_change_factor,
    )
    code, text = ErrorCode.none, ""
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.AlterPartitionReassignments(message, timeout=seconds),
            controller_timeout_seconds(request),
        )
    except KafkaError as error:
        code, text = error.code, error.message
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results = iter([failed] * len(message.partitions))
    else:
        results = iter(response.results)
    return {
        "allow_replication_factor_change": may_change_factor,
        "error_code": code,
        "error_message": text or (None if request.body.topics else ""),  # a habit of Kafka's
        "responses": [
            {
                "name": topic.name,
                "partitions": [_row(partition, next(results)) for partition in topic.partitions],
            }
            for topic in request.body.topics
        ],
    }


def _wanted(name: str, partition: Any) -> PartitionReassignment:
    return PartitionReassignment(
        topic=name,
        partition=partition.partition_index,
        replicas=partition.replicas or (),
        cancel=partition.replicas is None,
    )


def _row(partition: Any, result: ResourceResult) -> dict[str, Any]:
    return {
        "partition_index": partition.partition_index,
        "error_code": result.error_code,
        "error_message": result.error_message or None,
    }


HANDLER = Handler(api_key=45, versions=(0, 1), handle=handle)
