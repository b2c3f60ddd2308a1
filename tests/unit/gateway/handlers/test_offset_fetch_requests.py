"""OffsetFetch: what the coordinator is asked in every version, what the client hears, and what if nobody answers."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from gateway_harness import Gateway, answering, topic_id

from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.handlers.offset_fetch import CUT_OFF_SECONDS
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

OFFSET_FETCH = 9
UNKNOWN_ID = uuid.UUID(int=5).bytes


def fetch_some(message: Any) -> pb.OffsetFetchResponse:
    topics = message.topics
    if message.all_topics:
        topics = [pb.OffsetFetchTopic(name=name, partitions=[0]) for name in ("bills", "gone")]
    return pb.OffsetFetchResponse(
        topics=[
            pb.OffsetFetchTopicResult(
                name=topic.name,
                partitions=[
                    pb.OffsetFetchPartitionResult(
                        partition=index, committed_offset=40 + index, committed_leader_epoch=5, metadata="m"
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def offset_fetch_body(version: int, topics: list[Any] | None) -> dict[str, Any]:
    group = {"group_id": "g", "topics": topics}
    return {**group, "require_stable": True, "groups": [group, {**group, "group_id": "h"}]}


@pytest.mark.parametrize("version", range(1, 11))
async def test_offset_fetch(version: int) -> None:
    gateway = answering("OffsetFetch", fetch_some)
    topics = [
        {"name": "orders", "topic_id": topic_id("orders"), "partition_indexes": [1]},
        {"name": "none", "topic_id": UNKNOWN_ID, "partition_indexes": [0]},
        {"name": "bills", "topic_id": topic_id("bills"), "partition_indexes": [0]},
    ]
    answer = await gateway.ask(OFFSET_FETCH, version, offset_fetch_body(version, topics))
    groups = answer.groups if version >= 8 else [answer]
    assert len(groups) == len(gateway.coordinator.calls) == (2 if version >= 8 else 1)
    for group in groups:
        first, second, third = group.topics
        assert (first.partitions[0].committed_offset, first.partitions[0].metadata) == (41, "m")
        assert third.partitions[0].committed_offset == 40
        got = second.partitions[0]
        # By name anything can have offsets; an id that nobody has cannot.
        assert (got.committed_offset, got.error_code) == ((-1, 100) if version >= 10 else (40, 0))
        if version >= 10:
            assert second.topic_id.bytes == UNKNOWN_ID
        if version >= 5:
            assert third.partitions[0].committed_leader_epoch == 5
    assert gateway.coordinator.calls[0][1].require_stable == (version >= 7)


@pytest.mark.parametrize("version", range(2, 11))
async def test_offset_fetch_of_all_topics(version: int) -> None:
    gateway = answering("OffsetFetch", fetch_some)
    answer = await gateway.ask(OFFSET_FETCH, version, offset_fetch_body(version, None))
    group = answer.groups[0] if version >= 8 else answer
    assert gateway.coordinator.calls[0][1].all_topics
    if version >= 10:
        assert [topic.topic_id.bytes for topic in group.topics] == [topic_id("bills")]
    else:
        assert [topic.name for topic in group.topics] == ["bills", "gone"]


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
async def test_who_is_sent_elsewhere_for_offsets_asks_again_here(code: ErrorCode) -> None:
    """librdkafka would look for the coordinator, and never ask again."""
    gateway = answering("OffsetFetch", lambda _: pb.OffsetFetchResponse(error_code=code))
    answer = await gateway.ask(OFFSET_FETCH, 8, offset_fetch_body(8, None))
    assert {group.error_code for group in answer.groups} == {ErrorCode.coordinator_load_in_progress}


@pytest.mark.parametrize("version", [1, 7, 8])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,  # a coordinator that is cut off with its gateway
    ],
)
async def test_who_asks_a_gateway_that_is_cut_off_for_offsets_has_to_look_elsewhere(
    code: ErrorCode, version: int
) -> None:
    """All that the client can be told either has it ask here for ever, or, with librdkafka, never again."""
    gateway = answering("OffsetFetch", lambda _: pb.OffsetFetchResponse(error_code=code))
    body = offset_fetch_body(version, [])
    gateway.metadata.silent_seconds = CUT_OFF_SECONDS  # not for long yet: a standby may be about to take over
    await gateway.ask(OFFSET_FETCH, version, body)
    gateway.metadata.silent_seconds += 1
    with pytest.raises(CloseConnection, match="no controller is heard"):
        await gateway.ask(OFFSET_FETCH, version, body)
    alone = Gateway()  # nobody answers it
    alone.metadata.silent_seconds = CUT_OFF_SECONDS + 1
    with pytest.raises(CloseConnection):
        await alone.ask(OFFSET_FETCH, version, body)


async def test_what_others_answer_to_who_has_to_look_elsewhere_is_given_back() -> None:
    """The connection is closed when all have answered, and nothing of it stays in the budget."""
    large = pb.OffsetFetchResponse(topics=[pb.OffsetFetchTopicResult(name="n" * 100_000)])

    async def a_moment_later() -> pb.OffsetFetchResponse:
        await asyncio.sleep(0.01)
        return large

    def fetch(message: Any) -> Any:
        if message.group_id == "g0":
            return pb.OffsetFetchResponse(error_code=ErrorCode.not_coordinator)
        return a_moment_later()

    gateway = answering("OffsetFetch", fetch)
    gateway.metadata.silent_seconds = CUT_OFF_SECONDS + 1
    groups = [{"group_id": f"g{number}", "topics": []} for number in range(64)]
    used = gateway.parts.budget.used_bytes
    with pytest.raises(CloseConnection):
        await gateway.ask(OFFSET_FETCH, 8, {"groups": groups, "require_stable": True})
    await asyncio.sleep(0.05)
    assert gateway.parts.budget.used_bytes == used


async def test_a_gateway_that_is_cut_off_tells_offsets_as_long_as_the_coordinator_does() -> None:
    gateway = answering("OffsetFetch", fetch_some)
    gateway.metadata.silent_seconds = CUT_OFF_SECONDS + 1
    answer = await gateway.ask(OFFSET_FETCH, 8, offset_fetch_body(8, None))
    assert [group.error_code for group in answer.groups] == [0, 0]


async def test_each_group_has_an_error_of_its_own() -> None:
    codes = {"g": ErrorCode.unknown_member_id, "h": ErrorCode.not_coordinator, "i": ErrorCode.none}
    gateway = answering(
        "OffsetFetch", lambda message: pb.OffsetFetchResponse(error_code=codes[message.group_id])
    )
    groups = [{"group_id": group, "topics": None} for group in codes]
    answer = await gateway.ask(OFFSET_FETCH, 8, {"groups": groups, "require_stable": True})
    assert [ErrorCode(group.error_code) for group in answer.groups] == [
        ErrorCode.unknown_member_id,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.none,
    ]


@pytest.mark.parametrize("version", range(1, 11))
async def test_offset_fetch_without_a_coordinator(version: int) -> None:
    topics = [{"name": "bills", "topic_id": topic_id("bills"), "partition_indexes": [0]}]
    answer = await Gateway().ask(OFFSET_FETCH, version, offset_fetch_body(version, topics))
    if version == 1:
        (partition,) = answer.topics[0].partitions
        assert (partition.committed_offset, partition.error_code) == (
            -1,
            ErrorCode.coordinator_load_in_progress,
        )
    else:
        group = answer.groups[1] if version >= 8 else answer
        assert (group.error_code, group.topics) == (ErrorCode.coordinator_load_in_progress, ())
