"""What clients hear when nobody leads, or the service behind an API gives no answer: the code that Kafka has for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from gateway_harness import Gateway

from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Answer, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown

PRODUCE, FETCH, LIST_OFFSETS, METADATA, DELETE_RECORDS = 0, 1, 2, 3, 21
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS, INIT_PRODUCER_ID = 23, 61, 22

LEADERLESS: Final = 2
"""The partition of `orders` that nobody leads."""

Ask = tuple[int, int, dict[str, Any], Callable[[Any], Any]]

TO_THE_LEADER: Final[list[Ask]] = [
    (
        PRODUCE,
        12,
        {
            "acks": -1,
            "timeout": 0,
            "topic_data": [{"name": "orders", "partition_data": [{"index": LEADERLESS, "records": b""}]}],
        },
        lambda answer: answer.responses[0].partition_responses[0],
    ),
    (
        FETCH,
        12,
        {"max_bytes": 1, "topics": [{"topic": "orders", "partitions": [{"partition": LEADERLESS}]}]},
        lambda answer: answer.responses[0].partitions[0],
    ),
    (
        LIST_OFFSETS,
        7,
        {"topics": [{"name": "orders", "partitions": [{"partition_index": LEADERLESS}]}]},
        lambda answer: answer.topics[0].partitions[0],
    ),
    (
        DELETE_RECORDS,
        2,
        {"topics": [{"name": "orders", "partitions": [{"partition_index": LEADERLESS}]}]},
        lambda answer: answer.topics[0].partitions[0],
    ),
    (
        OFFSET_FOR_LEADER_EPOCH,
        4,
        {"topics": [{"topic": "orders", "partitions": [{"partition": LEADERLESS}]}]},
        lambda answer: answer.topics[0].partitions[0],
    ),
    (
        DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": "orders", "partition_indexes": [LEADERLESS]}]},
        lambda answer: answer.topics[0].partitions[0],
    ),
]


@pytest.mark.parametrize(("api_key", "version", "body", "row"), TO_THE_LEADER)
async def test_what_goes_to_the_leader_is_told_that_nobody_leads(
    api_key: int, version: int, body: dict[str, Any], row: Callable[[Any], Any]
) -> None:
    answer = await Gateway().ask(api_key, version, body)
    assert row(answer).error_code == ErrorCode.not_leader_or_follower


async def test_metadata_shows_that_there_is_no_leader() -> None:
    answer = await Gateway().ask(METADATA, 12, {"topics": [{"name": "orders"}]})
    codes = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    assert codes[LEADERLESS] == ErrorCode.leader_not_available


async def test_a_producer_without_an_id_is_to_wait_for_one() -> None:
    answer = await Gateway().ask(INIT_PRODUCER_ID, 4, {"transactional_id": None})
    assert answer.error_code == ErrorCode.coordinator_load_in_progress
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("api_key", "version", "code"),
    [
        (12, 4, ErrorCode.coordinator_not_available),
        (16, 5, ErrorCode.coordinator_not_available),
        (22, 5, ErrorCode.coordinator_load_in_progress),
        (35, 5, ErrorCode.request_timed_out),
        (55, 2, ErrorCode.request_timed_out),
        (57, 2, ErrorCode.request_timed_out),
    ],
)
async def test_a_call_that_fails_in_any_handler_has_the_code_of_its_api(
    api_key: int, version: int, code: ErrorCode
) -> None:
    async def fails(_: Request) -> Answer:
        raise OutcomeUnknown("nobody is there")

    gateway = Gateway()
    handlers = {api_key: replace(HANDLERS[api_key], handle=fails)}
    gateway.dispatcher = Dispatcher(handlers, gateway.parts, RequestMetrics())
    answer = await gateway.ask(api_key, version, {})
    assert answer.error_code == code
