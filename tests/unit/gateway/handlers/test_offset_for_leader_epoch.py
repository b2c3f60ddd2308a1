"""OffsetForLeaderEpoch: each partition asked at its leader, and answered by itself."""

from __future__ import annotations

from typing import Any, Final

import pytest
from gateway_harness import Gateway

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResult,
)

OFFSET_FOR_LEADER_EPOCH: Final = 23


def asked(topic: str, *partitions: int) -> dict[str, Any]:
    rows = [{"partition": each, "current_leader_epoch": 5, "leader_epoch": 3} for each in partitions]
    return {"topics": [{"topic": topic, "partitions": rows}]}


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_the_leader_says_where_the_epoch_ends(version: int) -> None:
    gateway = Gateway()
    sent: list[OffsetForLeaderEpochRequest] = []

    def answer(message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        sent.append(message)
        end = EpochEndOffset(leader_epoch=2, end_offset=41)
        return OffsetForLeaderEpochResponse(results=[OffsetForLeaderEpochResult(end=end)])

    gateway.node(1).answers["OffsetForLeaderEpoch"] = answer
    got = await gateway.ask(OFFSET_FOR_LEADER_EPOCH, version, asked("orders", 0))
    (row,) = got.topics[0].partitions
    assert (row.error_code, row.partition, row.leader_epoch, row.end_offset) == (ErrorCode.none, 0, 2, 41)
    (message,) = sent
    (partition,) = message.partitions
    assert partition.topic_id == gateway.metadata.image.topics["orders"].topic_id
    assert (partition.partition, partition.current_leader_epoch, partition.leader_epoch) == (0, 5, 3)


async def test_what_nobody_answers_for_has_neither_epoch_nor_offset() -> None:
    gateway = Gateway()
    gateway.node(1)  # which does not answer; node 2 is away
    got = await gateway.ask(OFFSET_FOR_LEADER_EPOCH, 4, asked("orders", 0, 1, 7))
    assert [(row.partition, row.error_code) for row in got.topics[0].partitions] == [
        (0, ErrorCode.not_leader_or_follower),
        (1, ErrorCode.not_leader_or_follower),
        (7, ErrorCode.unknown_topic_or_partition),
    ]
    assert {(row.leader_epoch, row.end_offset) for row in got.topics[0].partitions} == {(-1, -1)}
