"""DeleteTopics (key 20): topics by name, from v6 by name or id.

v3 may answer TOPIC_DELETION_DISABLED, which older versions call INVALID_REQUEST, v5 adds error messages. The answer
comes when this gateway no longer knows the topics.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
    wait_for_image,
)
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import DeletedTopic, DeleteTopicsRequest, ResourceResult, TopicRef

_TOPIC_ID_FROM: Final = 6
_DELETION_DISABLED_FROM: Final = 3


async def handle(request: Request) -> Answer:
    message = DeleteTopicsRequest(topics=_topics(request))
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.DeleteTopics(message, timeout=seconds),
            controller_timeout_seconds(request),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results = [
            DeletedTopic(name=topic.name, topic_id=topic.topic_id, result=failed) for topic in message.topics
        ]
    else:
        results = list(response.topics)
    deleted = {result.topic_id for result in results if not result.result.error_code}
    await wait_for_image(
        request, lambda image: not any(topic_id in image.topics_by_id for topic_id in deleted)
    )
    # A topic that is asked for twice is answered once, as in Kafka.
    answered = {(result.name, result.topic_id): result for result in results}
    answers = [_answer(request, result) for result in answered.values()]
    return {"responses": [*answers, *_answer_to_empty_name(request)]}


def _topics(request: Request) -> list[TopicRef]:
    if request.version < _TOPIC_ID_FROM:
        return [TopicRef(name=name) for name in request.body.topic_names if name]
    return [
        TopicRef(name=topic.name or "", topic_id=topic.topic_id.bytes if topic.topic_id else b"")
        for topic in request.body.topics
        if topic.name != "" or topic.topic_id
    ]


def _answer_to_empty_name(request: Request) -> list[dict[str, Any]]:
    """No topic has an empty name; the controller could not tell it from a name that is not given at all."""
    if request.version < _TOPIC_ID_FROM:
        times = request.body.topic_names.count("")
    else:
        times = sum(topic.name == "" and not topic.topic_id for topic in request.body.topics)
    if not times:
        return []
    code, message = ErrorCode.unknown_topic_or_partition, "No topic has an empty name."
    if times > 1:
        code, message = ErrorCode.invalid_request, "Duplicate topic name."
    return [{"name": "", "topic_id": b"", "error_code": code, "error_message": message}]


def _answer(request: Request, result: DeletedTopic) -> dict[str, Any]:
    code = ErrorCode(result.result.error_code)
    if code is ErrorCode.topic_deletion_disabled and request.version < _DELETION_DISABLED_FROM:
        code = ErrorCode.invalid_request
    name: str | None = result.name
    if request.version >= _TOPIC_ID_FROM:
        name = result.name or None
    return {
        "name": name,
        "topic_id": result.topic_id,
        "error_code": code,
        "error_message": result.result.error_message or None,
    }


HANDLER = Handler(api_key=20, versions=(1, 6), handle=handle)
