"""OffsetFetch (key 9): what groups have committed.

v2 adds "all topics" (null) and an error of the whole, v5 leader epochs, v7 require_stable (KIP-447), v8 several groups
(KIP-709), v9 member id and epoch, v10 topic ids. Each group is asked for at its own coordinator, all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.inside.group_calls import call_coordinator
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES

_ERROR_OF_THE_WHOLE_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_ID_FROM: Final = 10
_NO_OFFSET: Final = -1

GROUPS_AT_ONCE: Final = 64
"""How many groups of one request are asked for at the same time."""


async def handle(request: Request) -> Answer:
    if request.version < _MANY_GROUPS_FROM:
        return await _fetch(request, request.body)
    at_once = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def fetch_in_turn(group: Any) -> dict[str, Any]:
        async with at_once:
            return await _fetch(request, group)

    return {"groups": await asyncio.gather(*map(fetch_in_turn, request.body.groups))}


async def _fetch(request: Request, group: Any) -> dict[str, Any]:
    """The answer for one group; `group` is the group's entry, or before v8 the request itself."""
    image = request.image
    names = _names(request, image, group.topics)
    message = OffsetFetchRequest(
        group_id=group.group_id,
        all_topics=group.topics is None,
        topics=[
            OffsetFetchTopic(name=name, partitions=topic.partition_indexes)
            for name, topic in zip(names, group.topics or (), strict=True)
            if name is not None
        ],
        require_stable=request.get("require_stable", False),
        member_id=getattr(group, "member_id", None),
        member_epoch=getattr(group, "member_epoch", -1),
    )
    response = await call_coordinator(
        request,
        group.group_id,
        lambda coordinator: coordinator.OffsetFetch(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        # Consumers before 3.9 do not expect COORDINATOR_NOT_AVAILABLE here; this has them look it up again too.
        lambda _: OffsetFetchResponse(error_code=ErrorCode.not_coordinator),
    )
    return {"group_id": group.group_id, **_answer(request, image, group, names, response)}


def _names(request: Request, image: MetadataImage, topics: Sequence[Any] | None) -> list[str | None]:
    """The name of each topic that is asked for; None for an id that nobody has."""
    if request.version < _TOPIC_ID_FROM:
        return [topic.name for topic in topics or ()]
    found = [
        image.topics_by_id.get(topic.topic_id.bytes) if topic.topic_id else None for topic in topics or ()
    ]
    return [None if topic is None else topic.name for topic in found]


def _answer(
    request: Request, image: MetadataImage, group: Any, names: list[str | None], response: OffsetFetchResponse
) -> dict[str, Any]:
    if response.error_code:
        topics = []
        if request.version < _ERROR_OF_THE_WHOLE_FROM:
            topics = [_without_offsets(topic, response.error_code) for topic in group.topics]
        return {"error_code": response.error_code, "topics": topics}
    if group.topics is None:
        described = [_all_of(request, image, topic) for topic in response.topics]
        return {"topics": [topic for topic in described if topic is not None]}
    fetched = iter(response.topics)
    return {
        "topics": [
            _without_offsets(topic, ErrorCode.unknown_topic_id)
            if name is None
            else {**_key(topic), "partitions": _partitions(next(fetched))}
            for topic, name in zip(group.topics, names, strict=True)
        ]
    }


def _all_of(request: Request, image: MetadataImage, got: OffsetFetchTopicResult) -> dict[str, Any] | None:
    """A topic of "all topics"; None when it has to be named by its id and no longer has one."""
    topic = image.topics.get(got.name)
    if topic is None and request.version >= _TOPIC_ID_FROM:
        return None
    topic_id = b"" if topic is None else topic.topic_id
    return {"name": got.name, "topic_id": topic_id, "partitions": _partitions(got)}


def _key(topic: Any) -> dict[str, Any]:
    topic_id = getattr(topic, "topic_id", None)
    return {"name": getattr(topic, "name", ""), "topic_id": topic_id.bytes if topic_id else b""}


def _partitions(got: OffsetFetchTopicResult) -> list[dict[str, Any]]:
    return [
        {
            "partition_index": partition.partition,
            "committed_offset": partition.committed_offset,
            "committed_leader_epoch": partition.committed_leader_epoch,
            "metadata": partition.metadata,
            "error_code": partition.error_code,
        }
        for partition in got.partitions
    ]


def _without_offsets(topic: Any, code: int) -> dict[str, Any]:
    return {
        **_key(topic),
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": _NO_OFFSET,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": code,
            }
            for index in topic.partition_indexes
        ],
    }


HANDLER = Handler(api_key=9, versions=(1, 10), handle=handle, unanswered=NOBODY_COORDINATES)
