"""Looking up at leaders whose connection breaks under the question."""

from __future__ import annotations

from typing import Any, Final

import pytest
from gateway_harness import Gateway

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.messages.storage_pb2 import ListOffsetsRequest, ListOffsetsResponse, ListOffsetsResult

LIST_OFFSETS: Final = 2
DELETE_RECORDS: Final = 21
EARLIEST: Final = -2


async def earliest(gateway: Gateway) -> tuple[int, int]:
    """(error code, offset) of a partition that node 1 leads."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": EARLIEST}
    topics = [{"name": "orders", "partitions": [partition]}]
    answer = await gateway.ask(LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    (row,) = answer.topics[0].partitions
    return row.error_code, row.offset


def answering(gateway: Gateway, *failures: LinkError) -> list[tuple[str, Any, float | None]]:
    """Node 1 fails so, and then answers; returns the calls of it."""
    left = list(failures)

    def answer(_: ListOffsetsRequest) -> ListOffsetsResponse:
        if left:
            raise left.pop(0)
        return ListOffsetsResponse(results=[ListOffsetsResult(offset=41, timestamp_ms=-1, leader_epoch=5)])

    node = gateway.node(1)
    node.answers["ListOffsets"] = answer
    return node.calls


@pytest.mark.parametrize("failure", [OutcomeUnknown("the connection broke"), Unreachable("it is closed")])
async def test_a_leader_whose_connection_breaks_is_asked_again(failure: LinkError) -> None:
    """A node that was started anew is behind another connection, which the first call to it may find out."""
    gateway = Gateway()
    calls = answering(gateway, failure)
    assert await earliest(gateway) == (ErrorCode.none, 41)
    (_, first, _), (_, second, seconds) = calls
    assert first == second
    assert seconds is not None
    assert 0 < seconds <= 10


async def test_records_are_not_deleted_twice() -> None:
    gateway = Gateway()
    node = gateway.node(1)  # which answers nothing
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": -1}]}]
    answer = await gateway.ask(DELETE_RECORDS, 2, {"topics": topics, "timeout": 5_000})
    (row,) = answer.topics[0].partitions
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert len(node.calls) == 1


async def test_a_leader_that_is_not_reached_twice_is_away() -> None:
    gateway = Gateway()
    calls = answering(gateway, OutcomeUnknown("the connection broke"), OutcomeUnknown("nobody is there"))
    assert await earliest(gateway) == (ErrorCode.not_leader_or_follower, -1)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "failure", [DeadlinePassed("it took too long"), Refused(Refusal.UNKNOWN_CALL, "no such call")]
)
async def test_a_leader_that_has_had_its_time_or_refuses_is_asked_once(failure: LinkError) -> None:
    gateway = Gateway()
    calls = answering(gateway, failure)
    assert await earliest(gateway) == (ErrorCode.not_leader_or_follower, -1)
    assert len(calls) == 1
