"""OffsetFetch (key 9): what groups have committed.

v2 adds "all topics" (null) and an error of the whole, v5 leader epochs, v7 require_stable (KIP-447), v8 several groups
(KIP-709), v9 member id and epoch, v10 topic ids. Each group is asked for at its own coordinator, all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.group_calls import call_coordinator_once
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from barnabas.metadata.image import MetadataImage
from barnabas.wire.response_slices import Rows

_ERROR_OF_THE_WHOLE_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_ID_FROM: Final = 10
_NO_OFFSET: Final = -1
_NOT_FETCHED: Final = OffsetFetchResponse(error_code=ErrorCode.coordinator_load_in_progress)
"""All clients ask again after this code, and a gateway that hears of the cluster asks whoever owns the group by then.
After NOT_COORDINATOR librdkafka looks for the coordinator and does not ask again: its partition stands still without an
error."""

_SENT_ELSEWHERE: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})

CUT_OFF_SECONDS: Final = 10.0
"""Without a word of the controllers, a gateway that gets no offsets sends clients to look for another broker. Longer
than a standby takes to take over: then nobody has a better gateway to go to, and clients that lose connections wait
longer and longer before they connect again."""

GROUPS_AT_ONCE: Final = 64
"""Groups of one request that are asked for at the same time."""


async def handle(request: Request) -> Answer:
    image = request.image
    async with Gathered(request) as gathered:
        if request.version < _MANY_GROUPS_FROM:
            fetched = _fetch(request, image, gathered, request.body, limits.CALL_TIMEOUT_SECONDS)
            (response,) = _checked(request, [await fetched])
            body = _answer(request, image, request.body, response)
        else:
            body = {"groups": await _answers(request, image, gathered)}
        return await encode_answer(request, body, limits.DESCRIBED_BYTES_MAX)


async def _answers(request: Request, image: MetadataImage, gathered: Gathered) -> Rows | list[dict[str, Any]]:
    groups = request.body.groups
    if len(groups) == 1:  # as consumers ask
        only = _fetch(request, image, gathered, groups[0], limits.CALL_TIMEOUT_SECONDS)
        (response,) = _checked(request, [await only])
        return [_answer(request, image, groups[0], response)]
    fetched = await _fetch_all(request, image, gathered)
    gathered.check_repeated({group: response.ByteSize() for group, response in fetched.items()}, groups)
    return Rows(len(groups), (_answer(request, image, group, fetched[group]) for group in groups))


async def _fetch_all(
    request: Request, image: MetadataImage, gathered: Gathered
) -> dict[Any, OffsetFetchResponse]:
    """What is committed of each group; what is asked for twice is fetched once. There is nothing of those whose turn
    does not come in time, or for which there is no room: clients ask again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.CALL_TIMEOUT_SECONDS
    fetched: dict[Any, OffsetFetchResponse] = {}
    groups = list(dict.fromkeys(request.body.groups))
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[start : start + GROUPS_AT_ONCE]
        await gathered.may_go_on()
        seconds = deadline - loop.time()
        if seconds <= 0 or gathered.is_full:
            fetched |= dict.fromkeys(some, _NOT_FETCHED)
            continue
        asked = (_fetch(request, image, gathered, group, seconds) for group in some)
        fetched |= zip(some, _checked(request, await asyncio.gather(*asked)), strict=True)
        await asyncio.sleep(0)  # where no coordinator is known, nothing was waited for
    return fetched


async def _fetch(
    request: Request, image: MetadataImage, gathered: Gathered, group: Any, seconds: float
) -> OffsetFetchResponse:
    """What its coordinator says of one group; `group` is the group's entry, or before v8 the request itself."""
    # A partition that is named twice is answered twice, as in Kafka, but asked for once.
    wanted: dict[str, dict[int, None]] = {}
    ids: dict[str, bytes] = {}
    for name, topic in zip(_names(request, image, group.topics), group.topics or (), strict=True):
        if name is not None:
            wanted.setdefault(name, {}).update(dict.fromkeys(topic.partition_indexes))
            if request.version >= _TOPIC_ID_FROM:
                ids[name] = topic.topic_id.bytes
    message = OffsetFetchRequest(
        group_id=group.group_id,
        all_topics=group.topics is None,
        topics=[
            OffsetFetchTopic(name=name, partitions=partitions, topic_id=ids.get(name, b""))
            for name, partitions in wanted.items()
        ],
        require_stable=request.get("require_stable", False),
        member_id=getattr(group, "member_id", None),
        member_epoch=getattr(group, "member_epoch", -1),
    )
    response = await call_coordinator_once(
        request,
        group.group_id,
        lambda coordinator: coordinator.OffsetFetch(message, timeout=seconds),
        lambda code: OffsetFetchResponse(error_code=code),
    )
    gathered.add(response.ByteSize())
    return response


def _checked(request: Request, responses: Iterable[OffsetFetchResponse]) -> list[OffsetFetchResponse]:
    """As clients are told of them. Raises CloseConnection where some are to be asked for again and this gateway has
    been cut off for long: to ask again here leads nowhere, and without their connection all clients look for another
    broker.
    """
    checked = [_NOT_FETCHED if each.error_code in _SENT_ELSEWHERE else each for each in responses]
    if request.parts.metadata.silent_seconds > CUT_OFF_SECONDS and any(
        each.error_code == _NOT_FETCHED.error_code for each in checked
    ):
        request.times.count_error(_NOT_FETCHED.error_code)
        raise CloseConnection("OffsetFetch: the coordinator tells nothing, and no controller is heard")
    return checked


def _names(request: Request, image: MetadataImage, topics: Sequence[Any] | None) -> list[str | None]:
    """The name of each topic that is asked for; None for an id that nobody has."""
    if request.version < _TOPIC_ID_FROM:
        return [topic.name for topic in topics or ()]
    found = [
        image.topics_by_id.get(topic.topic_id.bytes) if topic.topic_id else None for topic in topics or ()
    ]
    return [None if topic is None else topic.name for topic in found]


def _answer(
    request: Request, image: MetadataImage, group: Any, response: OffsetFetchResponse
) -> dict[str, Any]:
    return {"group_id": group.group_id, **_committed(request, image, group, response)}


def _committed(
    request: Request, image: MetadataImage, group: Any, response: OffsetFetchResponse
) -> dict[str, Any]:
    if response.error_code:
        topics = []
        if request.version < _ERROR_OF_THE_WHOLE_FROM:
            topics = [_without_offsets(topic, response.error_code) for topic in group.topics]
        return {"error_code": response.error_code, "topics": topics}
    if group.topics is None:
        described = [_all_of(request, image, topic) for topic in response.topics]
        return {"topics": [topic for topic in described if topic is not None]}
    fetched = {
        topic.name: {partition.partition: partition for partition in topic.partitions}
        for topic in response.topics
    }
    names = _names(request, image, group.topics)
    return {
        "topics": [
            _without_offsets(topic, ErrorCode.unknown_topic_id)
            if name is None
            else _named(topic, fetched[name])
            for topic, name in zip(group.topics, names, strict=True)
        ]
    }


def _named(topic: Any, fetched: Mapping[int, OffsetFetchPartitionResult]) -> dict[str, Any]:
    indexes = topic.partition_indexes
    return {**_key(topic), "partitions": _partitions(map(fetched.__getitem__, indexes), len(indexes))}


def _all_of(request: Request, image: MetadataImage, got: OffsetFetchTopicResult) -> dict[str, Any] | None:
    """A topic of "all topics"; None when it has to be named by its id and no longer has one."""
    topic = image.topics.get(got.name)
    if topic is None and request.version >= _TOPIC_ID_FROM:
        return None
    topic_id = b"" if topic is None else topic.topic_id
    partitions = _partitions(got.partitions, len(got.partitions))
    return {"name": got.name, "topic_id": topic_id, "partitions": partitions}


def _key(topic: Any) -> dict[str, Any]:
    topic_id = getattr(topic, "topic_id", None)
    return {"name": getattr(topic, "name", ""), "topic_id": topic_id.bytes if topic_id else b""}


def _partitions(got: Iterable[OffsetFetchPartitionResult], count: int) -> Rows | list[dict[str, Any]]:
    rows = (
        {
            "partition_index": partition.partition,
            "committed_offset": partition.committed_offset,
            "committed_leader_epoch": partition.committed_leader_epoch,
            "metadata": partition.metadata,
            "error_code": partition.error_code,
        }
        for partition in got
    )
    return list(rows) if count <= limits.ROWS_AT_A_TIME else Rows(count, rows)


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


HANDLER = Handler(
    api_key=9, versions=(1, 10), handle=handle, unanswered=ErrorCode.coordinator_load_in_progress
)
