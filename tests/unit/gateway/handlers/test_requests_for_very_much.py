"""Small requests whose answers would be huge: what is asked for once, what counts, where it ends, and who waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import Gateway, small_cluster, topic_records

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2, storage_pb2

OFFSET_FETCH, DESCRIBE_GROUPS, DESCRIBE_PRODUCERS = 9, 15, 61
NOT_AVAILABLE, LOADING = ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress
KIB = 1024
ANSWER_KIB = 100
"""How large a description is here: of a group, of its offsets, of a partition's producers."""


class Gathering:
    """A gateway whose other services answer with much; `most_bytes` is what it has counted at the most."""

    def __init__(self) -> None:
        made = Gateway([*small_cluster(), *topic_records("wide", [1] * 100)])
        made.parts = replace(made.parts, budget=ByteBudget(1 << 40))
        made.dispatcher = Dispatcher(HANDLERS, made.parts, RequestMetrics())
        self.gateway = made
        self.asked: list[Any] = []
        self.most_bytes = 0
        made.coordinator.answers |= {"DescribeGroups": self._describe, "OffsetFetch": self._fetch}
        made.node(1).answers["DescribeProducers"] = self._producers

    def _see(self, asked: list[Any]) -> None:
        self.asked += asked
        self.most_bytes = max(self.most_bytes, self.gateway.parts.budget.used_bytes)

    async def _describe(self, message: Any) -> coordinator_pb2.DescribeGroupsResponse:
        response = coordinator_pb2.DescribeGroupsResponse()
        for group_id in message.group_ids:
            member = coordinator_pb2.GroupMemberDescription(member_id="m", metadata=bytes(ANSWER_KIB * KIB))
            response.groups.append(coordinator_pb2.GroupDescription(group_id=group_id, members=[member]))
            if response.ByteSize() >= message.bytes_max:
                break
        self._see([group.group_id for group in response.groups])
        return response

    async def _fetch(self, message: Any) -> coordinator_pb2.OffsetFetchResponse:
        self._see([message.group_id])
        topics = message.topics or [coordinator_pb2.OffsetFetchTopic(name="bills", partitions=[0])]
        return coordinator_pb2.OffsetFetchResponse(
            topics=[
                coordinator_pb2.OffsetFetchTopicResult(
                    name=topic.name,
                    partitions=[
                        coordinator_pb2.OffsetFetchPartitionResult(
                            partition=index, committed_offset=index, metadata="m" * 10 * KIB
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    async def _producers(self, message: Any) -> storage_pb2.DescribeProducersResponse:
        self._see([item.partition for item in message.partitions])
        producer = storage_pb2.ProducerDescription(producer_id=1 << 60, last_timestamp_ms=1 << 60)
        many = storage_pb2.PartitionProducers(producers=[producer] * 4_000)
        return storage_pb2.DescribeProducersResponse(results=[many] * len(message.partitions))

    async def ask(self, api_key: int, version: int, body: dict[str, Any]) -> Any:
        answer = await self.gateway.ask(api_key, version, body)
        assert self.gateway.parts.budget.used_bytes == 0
        assert not self.gateway.parts.gathering.locked()
        return answer


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATHERED_BYTES_FREE", 200 * KIB)
    monkeypatch.setattr(limits, "GATHERED_AT_A_TIME_BYTES", 250 * KIB)
    monkeypatch.setattr(limits, "GATHERED_BYTES_MAX", 1_000 * KIB)
    monkeypatch.setattr(limits, "DESCRIBED_BYTES_MAX", 2_000 * KIB)


async def test_a_group_that_is_named_often_is_described_once_and_the_answer_has_an_end(
    small_limits: None,
) -> None:
    gathering = Gathering()
    for count, code in ((2, 0), (4, ErrorCode.invalid_request), (49_000, ErrorCode.invalid_request)):
        answer = await gathering.ask(DESCRIBE_GROUPS, 5, {"groups": ["g"] * count})
        assert {group.error_code for group in answer.groups} == {code}
        assert len(answer.groups) == count
    assert gathering.asked == ["g"] * 3


async def test_what_does_not_fit_of_many_large_groups_is_asked_for_again(small_limits: None) -> None:
    gathering = Gathering()
    left = [f"g{index}" for index in range(25)]
    for described in (12, 12, 1):  # three at a time, until a thousand kilobytes are there
        answer = await gathering.ask(DESCRIBE_GROUPS, 5, {"groups": left})
        codes = [group.error_code for group in answer.groups]
        assert codes == [0] * described + [NOT_AVAILABLE] * (len(left) - described)
        left = left[described:]
    assert gathering.asked == [f"g{index}" for index in range(25)]
    assert 800 * KIB < gathering.most_bytes < 1_300 * KIB


async def test_coordinators_are_not_asked_for_more_at_a_time_than_a_gateway_takes() -> None:
    gathering = Gathering()
    await gathering.ask(DESCRIBE_GROUPS, 5, {"groups": ["g"]})
    ((_, message, _),) = gathering.gateway.coordinator.calls
    assert message.bytes_max == limits.GATHERED_AT_A_TIME_BYTES


async def test_a_coordinator_that_describes_nothing_is_not_asked_for_ever() -> None:
    gathering = Gathering()
    nothing = coordinator_pb2.DescribeGroupsResponse()
    gathering.gateway.coordinator.answers["DescribeGroups"] = lambda _: nothing
    answer = await gathering.ask(DESCRIBE_GROUPS, 5, {"groups": ["g", "h"]})
    assert [group.error_code for group in answer.groups] == [NOT_AVAILABLE] * 2


async def test_offsets_that_are_asked_for_often_are_fetched_once_and_the_answer_has_an_end(
    small_limits: None,
) -> None:
    gathering = Gathering()
    for count, code in ((20, 0), (1_000, ErrorCode.invalid_request)):
        groups = [{"group_id": "g", "topics": None}] * count
        answer = await gathering.ask(OFFSET_FETCH, 8, {"groups": groups})
        assert [group.error_code for group in answer.groups] == [code] * count
    assert gathering.asked == ["g"] * 2


async def test_a_partition_that_is_named_often_is_fetched_once(small_limits: None) -> None:
    gathering = Gathering()
    topics = [{"name": name, "partition_indexes": [0, 1, 0] * 10} for name in ("bills", "orders", "bills")]
    answer = await gathering.ask(OFFSET_FETCH, 5, {"group_id": "g", "topics": topics})
    got = [[partition.committed_offset for partition in topic.partitions] for topic in answer.topics]
    assert got == [[0, 1, 0] * 10] * 3
    ((_, message, _),) = gathering.gateway.coordinator.calls
    assert [(topic.name, list(topic.partitions)) for topic in message.topics] == [
        ("bills", [0, 1]),
        ("orders", [0, 1]),
    ]
    topics[0]["partition_indexes"] = [0] * 49_000
    answer = await gathering.ask(OFFSET_FETCH, 5, {"group_id": "g", "topics": topics})
    assert (answer.error_code, answer.topics) == (ErrorCode.invalid_request, ())


async def test_offsets_of_many_groups_end_where_there_is_no_room(
    small_limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.gateway.handlers.offset_fetch.GROUPS_AT_ONCE", 8)
    gathering = Gathering()
    groups = [{"group_id": f"g{index}", "topics": None} for index in range(200)]
    answer = await gathering.ask(OFFSET_FETCH, 8, {"groups": groups})
    codes = [group.error_code for group in answer.groups]
    assert codes == [0] * 104 + [LOADING] * 96
    assert len(gathering.asked) == 104


async def test_offset_fetches_of_a_coordinator_that_is_silent_come_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CALL_TIMEOUT_SECONDS", 0.05)
    gathering = Gathering()

    async def be_silent(_: Any) -> Any:
        await asyncio.sleep(0.03)
        return coordinator_pb2.OffsetFetchResponse()

    gathering.gateway.coordinator.answers["OffsetFetch"] = be_silent
    groups = [{"group_id": f"g{index}", "topics": None} for index in range(1_000)]
    answer = await gathering.ask(OFFSET_FETCH, 8, {"groups": groups})
    codes = [group.error_code for group in answer.groups]
    assert codes[0] == 0
    assert codes[-1] == LOADING


async def test_producers_of_a_partition_that_is_named_often_are_found_once_and_the_answer_has_an_end(
    small_limits: None,
) -> None:
    gathering = Gathering()
    for count, code in ((2, 0), (49_000, ErrorCode.invalid_request)):
        topics = [{"name": "wide", "partition_indexes": [5] * count}]
        answer = await gathering.ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})
        rows = [row for topic in answer.topics for row in topic.partitions]
        assert [row.error_code for row in rows] == [code] * count
        assert len(rows[-1].active_producers) == (0 if code else 4_000)
    assert gathering.asked == [5, 5]


async def test_producers_of_many_partitions_end_where_there_is_no_room(
    small_limits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GATHERED_BYTES_MAX", 600 * KIB)
    gathering = Gathering()
    topics = [{"name": "wide", "partition_indexes": range(100)}]
    answer = await gathering.ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})
    codes = [row.error_code for row in answer.topics[0].partitions]
    found = limits.PRODUCERS_AT_A_TIME
    assert codes == [0] * found + [ErrorCode.not_leader_or_follower] * (100 - found)
    assert gathering.asked == list(range(found))


async def test_who_gathers_much_goes_on_alone_and_the_others_are_counted(small_limits: None) -> None:
    gathering = Gathering()
    going_on, alone = asyncio.Event(), 0

    async def wait(message: Any) -> Any:
        nonlocal alone
        response = await gathering._describe(message)
        if message.group_ids[0] != "g0":
            alone += 1
            await going_on.wait()
            alone -= 1
        return response

    gathering.gateway.coordinator.answers["DescribeGroups"] = wait
    body = {"groups": [f"g{index}" for index in range(12)]}
    asking = [asyncio.create_task(gathering.gateway.ask(DESCRIBE_GROUPS, 5, body)) for _ in range(5)]
    small = asyncio.create_task(gathering.gateway.ask(DESCRIBE_GROUPS, 5, {"groups": ["g0"]}))
    assert len((await small).groups) == 1
    for _ in range(20):
        await asyncio.sleep(0)
    assert alone == 1
    assert 5 * 300 * KIB < gathering.gateway.parts.budget.used_bytes < 5 * 310 * KIB
    asking[0].cancel()
    going_on.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True] + [False] * 4
    assert gathering.gateway.parts.budget.used_bytes == 0
    assert not gathering.gateway.parts.gathering.locked()
