"""Answers in the corners of the protocol, as a real Kafka gives them (found by tests/golden)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from gateway_harness import FakeStream, Gateway, topic_id

from barnabas.gateway.answers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.gateway.parity.differences import DIFFERENCES, Difference
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.controller_pb2 import (
    DeletedTopic,
    DeleteTopicsResponse,
    ResourceResult,
)
from barnabas.messages.coordinator_pb2 import (
    OffsetCommitPartitionResult,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from barnabas.messages.storage_pb2 import PartitionFetchResult

FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, SYNC_GROUP = 1, 3, 8, 10, 14
DELETE_TOPICS, INIT_PRODUCER_ID, CREATE_PARTITIONS, DESCRIBE_CLUSTER = 20, 22, 37, 60


def fetch_body(**fields: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 99, "partition_max_bytes": 1_000, **fields}
    topic = {"topic": "bills", "topic_id": topic_id("bills"), "partitions": [partition]}
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1_000, "topics": [topic]}


def fetched(result: PartitionFetchResult) -> FetchedResult:
    return FetchedResult(0, [PartitionFetched(result, b"")])


async def test_a_fetch_that_failed_tells_no_offsets() -> None:
    result = PartitionFetchResult(
        error_code=ErrorCode.offset_out_of_range, high_watermark=9, last_stable_offset=9, log_start_offset=2
    )
    gateway = Gateway()
    gateway.node(1, fetches=FakeStream(lambda _: fetched(result)))
    (topic,) = (await gateway.ask(FETCH, 12, fetch_body())).responses
    (part,) = topic.partitions
    assert part.error_code == ErrorCode.offset_out_of_range
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)


async def test_any_negative_leader_epoch_is_none() -> None:
    stream = FakeStream(lambda _: fetched(PartitionFetchResult()))
    gateway = Gateway()
    gateway.node(1, fetches=stream)
    await gateway.ask(FETCH, 12, fetch_body(current_leader_epoch=-2))
    assert stream.requests[0].partitions[0].current_leader_epoch == -1


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_a_topic_named_twice_and_of_an_empty_name(version: int) -> None:
    asked = {"topics": [{"name": "bills"}, {"name": "bills"}, {"name": ""}]}
    bills, empty = (await Gateway().ask(METADATA, version, asked)).topics
    assert (bills.name, bills.error_code) == ("bills", 0)
    assert empty.error_code == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_id_is_refused_where_the_answer_needs_names(version: int) -> None:
    by_id = {"name": None, "topic_id": topic_id("bills")}
    answer = await Gateway().ask(METADATA, version, {"topics": [by_id]})
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.invalid_request]
    assert answer.brokers == ()


async def test_operations_are_told_to_those_who_ask() -> None:
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = await Gateway().ask(METADATA, 8, {"topics": [{"name": "bills"}], **asked})
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    answer = await Gateway().ask(METADATA, 8, {"topics": [{"name": "bills"}]})
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    wanted = {"topics": [{"name": "nowhere"}, {"name": "."}], "allow_auto_topic_creation": False}
    answer = await Gateway().ask(METADATA, 8, wanted | asked)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [TOPIC_OPERATIONS] * 2
    by_id = {
        "topics": [{"name": None, "topic_id": uuid.uuid4().bytes}],
        "include_topic_authorized_operations": True,
    }
    answer = await Gateway().ask(METADATA, 12, by_id)
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    for is_asked, operations in ((True, CLUSTER_OPERATIONS), (False, NOT_ASKED_FOR)):
        body = {"include_cluster_authorized_operations": is_asked}
        answer = await Gateway().ask(DESCRIBE_CLUSTER, 1, body)
        assert answer.cluster_authorized_operations == operations


@pytest.mark.parametrize(("version", "message"), [(1, "NONE"), (3, "NONE"), (4, ""), (6, "")])
async def test_a_found_coordinator_has_the_message_that_kafka_gives(version: int, message: str) -> None:
    answer = await Gateway().ask(FIND_COORDINATOR, version, {"key": "g", "coordinator_keys": ["g"]})
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.error_message) == (0, message)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
async def test_sync_without_a_protocol_is_inconsistent(missing: str) -> None:
    body = {"group_id": "g", "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"}
    answer = await Gateway().ask(SYNC_GROUP, 5, {**body, missing: None})
    assert answer.error_code == ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
async def test_a_commit_to_no_group(version: int, code: ErrorCode) -> None:
    gateway = Gateway()
    refused = OffsetCommitPartitionResult(partition=0, error_code=ErrorCode.group_id_not_found)
    gateway.coordinator.answers["OffsetCommit"] = lambda _: OffsetCommitResponse(
        topics=[OffsetCommitTopicResult(name="bills", partitions=[refused])]
    )
    topic = {"name": "bills", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    answer = await gateway.ask(OFFSET_COMMIT, version, {"group_id": "g", "topics": [topic]})
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 5)])
async def test_half_a_producer_is_no_producer(producer_id: int, producer_epoch: int) -> None:
    body = {"transactional_id": None, "producer_id": producer_id, "producer_epoch": producer_epoch}
    answer = await Gateway().ask(INIT_PRODUCER_ID, 4, body)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.invalid_request, -1)


async def test_a_topic_deleted_twice_is_answered_once() -> None:
    gateway = Gateway()
    refused = DeletedTopic(name="x", result=ResourceResult(error_code=ErrorCode.invalid_request))
    gateway.controller.answers["DeleteTopics"] = lambda _: DeleteTopicsResponse(topics=[refused, refused])
    answer = await gateway.ask(DELETE_TOPICS, 5, {"topic_names": ["x", "x"], "timeout": 1_000})
    assert [topic.name for topic in answer.responses] == ["x"]


def test_a_difference_matches_by_patterns() -> None:
    known = Difference(("Fetch", "List*"), "topics/*/error_code", "Because.", step="fetch: *", kafka="A")
    found = {"step": "fetch: x", "field": "topics/t/0/error_code", "kafka": "A", "ours": "B"}
    assert known.matches(api="ListOffsets", **found)
    assert not known.matches(api="Produce", **found)
    assert not known.matches(api="Fetch", **{**found, "kafka": "C"})
    assert not known.matches(api="Fetch", **{**found, "step": "produce: x"})


def test_every_reason_is_a_sentence() -> None:
    assert all(known.reason.endswith(".") and known.apis for known in DIFFERENCES)
