"""Fetch under both isolation levels, in every version: the last stable offset, and which transactions were aborted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from gateway_harness import FakeStream, Gateway, topic_id

from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.storage_pb2 import AbortedTransaction, PartitionFetchResult

FETCH: Final = 1
VERSIONS: Final = range(4, 19)
UNCOMMITTED, COMMITTED = 0, 1


def reading(*aborted: tuple[int, int], code: int = 0) -> Callable[[Any], FetchedResult]:
    """What a leader has read, up to the last stable offset 5 of 9."""
    result = PartitionFetchResult(
        error_code=code,
        high_watermark=9,
        last_stable_offset=5,
        aborted_transactions=[AbortedTransaction(producer_id=a, first_offset=b) for a, b in aborted],
    )
    return lambda _: FetchedResult(0, [PartitionFetched(result, b"" if code else b"r")])


def fetch_body(isolation_level: int) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    topic = {"topic": "bills", "topic_id": topic_id("bills"), "partitions": partitions}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1_000, "session_id": 0, "session_epoch": -1}
    return {**limits, "isolation_level": isolation_level, "topics": [topic]}


async def fetch(version: int, isolation_level: int, read: Callable[[Any], FetchedResult]) -> tuple[Any, int]:
    """(the partition of the answer, the isolation level that the leader was asked under)."""
    gateway = Gateway()
    stream = FakeStream(read)
    gateway.node(1, fetches=stream)
    answer = await gateway.ask(FETCH, version, fetch_body(isolation_level))
    return answer.responses[0].partitions[0], stream.requests[0].isolation_level


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("aborted", [[], [(7, 1), (8, 3)]])
async def test_who_reads_committed_records_is_told_what_was_aborted(
    version: int, aborted: list[tuple[int, int]]
) -> None:
    part, asked = await fetch(version, COMMITTED, reading(*aborted))
    assert asked == COMMITTED
    assert (part.high_watermark, part.last_stable_offset, part.records) == (9, 5, b"r")
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == aborted


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_reads_all_records_is_told_the_last_stable_offset_alone(version: int) -> None:
    part, asked = await fetch(version, UNCOMMITTED, reading())
    assert asked == UNCOMMITTED
    assert (part.high_watermark, part.last_stable_offset, part.aborted_transactions) == (9, 5, None)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_partition_that_fails_says_nothing_of_transactions(version: int) -> None:
    part, _ = await fetch(version, COMMITTED, reading(code=ErrorCode.offset_out_of_range))
    assert (part.error_code, part.last_stable_offset) == (ErrorCode.offset_out_of_range, -1)
    assert part.aborted_transactions is None
