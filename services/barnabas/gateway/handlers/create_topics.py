"""CreateTopics (key 19): new topics, each with a result of its own.

v1 adds validate_only and error messages, v4 lets the cluster choose partitions and replicas (-1), v5 answers with what
the topic has come to have (KIP-525), v7 with its id. Versions 0 and 1 went with Kafka 4. The answer comes when this
gateway knows the topics and their leaders have opened them, so that the client can use them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.config_resources import created_topic_configs
from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
    wait_for_image,
    wait_seconds,
)
from barnabas.gateway.inside.topic_creation import wait_for_leaders
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    ConfigEntry,
    CreatedTopic,
    CreateTopicsRequest,
    NewTopic,
    ReplicaAssignment,
    ResourceResult,
)
from barnabas.metadata.image import MetadataImage
from barnabas.wire.response_slices import Rows

_UNKNOWN: Final = -1
_SETTINGS_FROM: Final = 5


async def handle(request: Request) -> Answer:
    message = CreateTopicsRequest(
        topics=[_new_topic(topic) for topic in request.body.topics], validate_only=request.body.validate_only
    )
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.CreateTopics(message, timeout=seconds),
            controller_timeout_seconds(request),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results = [CreatedTopic(name=topic.name, result=failed) for topic in message.topics]
    else:
        results = list(response.topics)
    if not message.validate_only:
        created = {result.topic_id for result in results if not result.result.error_code}
        await wait_for_image(request, lambda image: all(each in image.topics_by_id for each in created))
        names = [result.name for result in results if not result.result.error_code]
        await wait_for_leaders(request.parts, names, wait_seconds(request))
    own = {topic.name: {entry.name: entry.value for entry in topic.configs} for topic in message.topics}
    image = request.image
    return {"topics": Rows(len(results), _answers(request, image, results, own))}


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            ReplicaAssignment(partition=assignment.partition_index, node_ids=assignment.broker_ids)
            for assignment in topic.assignments
        ],
        configs=[ConfigEntry(name=entry.name, value=entry.value) for entry in topic.configs],
    )


def _answers(
    request: Request,
    image: MetadataImage,
    results: Iterable[CreatedTopic],
    own: Mapping[str, Mapping[str, str]],
) -> Iterator[dict[str, Any]]:
    """What became of each topic, with its settings as long as those do not make the answer too large.

    The topics are there by now: what is too large is not refused, but its settings are left out.
    """
    settings_bytes = 0
    for result in results:
        has_room = settings_bytes < limits.CREATED_SETTINGS_BYTES_MAX
        answer = _answer(request, image, result, own.get(result.name, {}), has_room)
        settings_bytes += sum(len(each["name"]) + len(each["value"] or "") for each in answer["configs"])
        yield answer


def _answer(
    request: Request, image: MetadataImage, result: CreatedTopic, own: Mapping[str, str], has_room: bool
) -> dict[str, Any]:
    code = ErrorCode(result.result.error_code)
    answer = {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": code,
        "error_message": result.result.error_message or None,
        "topic_config_error_code": ErrorCode.none,
    }
    if code is not ErrorCode.none:
        return {**answer, "num_partitions": _UNKNOWN, "replication_factor": _UNKNOWN, "configs": []}
    asks_for_settings = request.version >= _SETTINGS_FROM
    is_left_out = asks_for_settings and not has_room
    return {
        **answer,
        "topic_config_error_code": ErrorCode.invalid_request if is_left_out else ErrorCode.none,
        "num_partitions": result.partition_count,
        "replication_factor": result.replication_factor,
        "configs": created_topic_configs(image, result.name, own) if asks_for_settings and has_room else [],
    }


HANDLER = Handler(api_key=19, versions=(2, 7), handle=handle)
