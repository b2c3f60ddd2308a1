"""CreatePartitions (key 37): topics grow to a number of partitions; one result per topic.

All versions say the same: v1 is about throttling, v2 flexible, v3 may answer THROTTLING_QUOTA_EXCEEDED. The answer
comes when this gateway knows the partitions and their leaders have opened them.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
    wait_for_image,
    wait_seconds,
)
from barnabas.gateway.inside.topic_creation import wait_for_leaders
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError
from barnabas.messages.controller_pb2 import (
    CreatePartitionsRequest,
    NewPartitions,
    ReplicaAssignment,
    ResourceResult,
)
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    # A topic that is named twice gets one result, as in Kafka; the controller, which is told of both, refuses it.
    message = CreatePartitionsRequest(
        topics=[_new_partitions(topic) for topic in request.body.topics],
        validate_only=request.body.validate_only,
    )
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.CreatePartitions(message, timeout=seconds),
            controller_timeout_seconds(request),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results = [failed] * len(message.topics)
    else:
        results = list(response.results)
    by_name = {topic.name: result for topic, result in zip(message.topics, results, strict=True)}
    if not message.validate_only:
        wanted = {
            topic.name: topic.partition_count
            for topic in message.topics
            if not by_name[topic.name].error_code
        }
        await wait_for_image(request, lambda image: _has_partitions(image, wanted))
        await wait_for_leaders(request.parts, wanted, wait_seconds(request))
    return {"results": [_answer(name, result) for name, result in by_name.items()]}


def _new_partitions(topic: Any) -> NewPartitions:
    """Clients assign the new partitions alone, in order; only the controller knows how many there are already."""
    message = NewPartitions(name=topic.name, partition_count=topic.count)
    for index, assignment in enumerate(topic.assignments or ()):
        message.assignments.append(ReplicaAssignment(partition=index, node_ids=assignment.broker_ids))
    return message


def _has_partitions(image: MetadataImage, wanted: dict[str, int]) -> bool:
    """Whether all topics have as many partitions; one that was deleted meanwhile is not waited for."""
    return all(
        name not in image.topics or len(image.topics[name].partitions) >= count
        for name, count in wanted.items()
    )


def _answer(name: str, result: ResourceResult) -> dict[str, Any]:
    return {
        "name": name,
        "error_code": result.error_code,
        "error_message": result.error_message or None,
    }


HANDLER = Handler(api_key=37, versions=(0, 3), handle=handle)
