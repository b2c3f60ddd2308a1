"""What is named twice, not at all or wrongly is answered as a real Kafka answers it (found by tests/golden)."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from gateway_harness import FakeStream, Gateway, topic_id

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.kernel.errors import ErrorCode
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.controller_pb2 import (
    AlterPartitionReassignmentsResponse,
    CreatedTopic,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeQuorumResponse,
    ResourceResult,
)
from barnabas.messages.coordinator_pb2 import OffsetDeleteResponse
from barnabas.messages.storage_pb2 import (
    AppendResult,
    ListOffsetsResponse,
    ListOffsetsResult,
    PartitionAppendResult,
    PartitionFetchResult,
)

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 8, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, ELECT_LEADERS, REASSIGN, OFFSET_DELETE = 21, 22, 43, 45, 47
DESCRIBE_QUOTAS, DESCRIBE_SCRAM, DESCRIBE_QUORUM, SUBSCRIBE, PUSH = 48, 50, 55, 71, 72
DESCRIBE_PRODUCERS = 61


def fetch_body(*partitions: tuple[int, int], max_bytes: int = 1_000, **fields: Any) -> dict[str, Any]:
    """`partitions` are (offset, bytes) of partition 0, as often as it is named."""
    rows = [
        {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size} for offset, size in partitions
    ]
    topic = {"topic": "bills", "topic_id": topic_id("bills"), "partitions": rows}
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": max_bytes, "topics": [topic], **fields
    }  # fmt: skip


def gateway_with_records(records: bytes = b"records") -> tuple[Gateway, FakeStream]:
    gateway = Gateway()
    stream = FakeStream(
        lambda message: FetchedResult(
            0, [PartitionFetched(PartitionFetchResult(), records) for _ in message.partitions]
        )
    )
    gateway.node(1, fetches=stream)
    return gateway, stream


async def test_fetch_of_a_partition_named_twice() -> None:
    gateway, stream = gateway_with_records()
    (topic,) = (await gateway.ask(FETCH, 12, fetch_body((3, 10), (5, 10)))).responses
    assert len(topic.partitions) == 1
    assert [asked.fetch_offset for asked in stream.requests[0].partitions] == [5]


@pytest.mark.parametrize("body", [fetch_body((0, -1)), fetch_body((0, 10), max_bytes=-1)])
async def test_fetch_of_less_than_nothing(body: dict[str, Any]) -> None:
    gateway, _ = gateway_with_records()
    part = (await gateway.ask(FETCH, 12, body)).responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, part.records) == (ErrorCode.invalid_request, -1, b"")
    gateway, _ = gateway_with_records(b"")
    part = (await gateway.ask(FETCH, 12, body)).responses[0].partitions[0]
    assert part.error_code == ErrorCode.none


@pytest.mark.parametrize("level", [2, -1])
async def test_an_isolation_level_that_does_not_exist(level: int) -> None:
    fetched = await Gateway().ask(FETCH, 12, fetch_body((0, 10), isolation_level=level))
    assert fetched.error_code == ErrorCode.invalid_request
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.invalid_request
    topics = [{"name": "bills", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    body = {"replica_id": -1, "isolation_level": level, "topics": topics}
    listed = await Gateway().ask(LIST_OFFSETS, 6, body)
    assert listed.topics[0].partitions[0].error_code == ErrorCode.invalid_request


async def test_list_offsets_of_a_partition_named_twice_and_of_a_topic_without_partitions() -> None:
    gateway = Gateway()
    node = gateway.node(1)
    node.answers["ListOffsets"] = lambda message: ListOffsetsResponse(
        results=[ListOffsetsResult(offset=7) for _ in message.partitions]
    )
    twice = [{"partition_index": 0, "timestamp": -1}] * 2
    once = [{"partition_index": 0, "timestamp": -1}]
    topics = [
        {"name": "bills", "partitions": twice},
        {"name": "orders", "partitions": once},
        {"name": "orders", "partitions": []},
        {"name": "other", "partitions": []},
    ]
    answer = await gateway.ask(LIST_OFFSETS, 6, {"replica_id": -1, "topics": topics})
    told = {
        topic.name: [(part.error_code, part.offset) for part in topic.partitions] for topic in answer.topics
    }
    assert told == {"bills": [(ErrorCode.invalid_request, -1)], "orders": [(0, 7)]}


async def test_produce_to_a_topic_named_twice_and_to_one_without_partitions() -> None:
    gateway = Gateway()

    def taken(message: Any) -> AppendResult:
        return AppendResult(
            partitions=[PartitionAppendResult(base_offset=part.partition) for part in message.partitions]
        )

    gateway.node(1, FakeStream(taken))
    gateway.node(2, FakeStream(taken))

    def rows(name: str, *partitions: int) -> dict[str, Any]:
        data = [{"index": index, "records": b"some"} for index in partitions]
        return {"name": name, "partition_data": data}

    topics = [rows("orders", 0), rows("bills"), rows("orders", 1)]
    answer = await gateway.ask(PRODUCE, 9, {"acks": 1, "timeout": 1_000, "topic_data": topics})
    assert [topic.name for topic in answer.responses] == ["orders"]
    assert [part.base_offset for part in answer.responses[0].partition_responses] == [0, 1]


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [(OFFSET_COMMIT, 9, {"group_id": "g"}), (OFFSET_DELETE, 0, {"group_id": "g"}), (DELETE_RECORDS, 2, {})],
)
async def test_a_topic_without_partitions_is_not_answered_for(
    api_key: int, version: int, fields: dict[str, Any]
) -> None:
    gateway = Gateway()
    gateway.coordinator.answers["OffsetDelete"] = lambda _: OffsetDeleteResponse()
    body = {"topics": [{"name": "bills", "partitions": []}], **fields}
    assert (await gateway.ask(api_key, version, body)).topics == ()


@pytest.mark.parametrize("version", [5, 6])
async def test_deleting_a_topic_with_an_empty_name(version: int) -> None:
    gateway = Gateway()
    gateway.controller.answers["DeleteTopics"] = lambda _: DeleteTopicsResponse()

    async def codes(*names: str) -> list[tuple[str, ErrorCode]]:
        asked = {"topic_names": names} if version < 6 else {"topics": [{"name": name} for name in names]}
        answer = await gateway.ask(DELETE_TOPICS, version, {**asked, "timeout": 1_000})
        return [(row.name, row.error_code) for row in answer.responses]

    assert await codes("") == [("", ErrorCode.unknown_topic_or_partition)]
    assert await codes("", "") == [("", ErrorCode.invalid_request)]
    assert await codes() == []


async def test_a_topic_that_is_only_validated_is_told_its_id() -> None:
    gateway = Gateway()
    created = CreatedTopic(name="new", result=ResourceResult(), topic_id=topic_id("new"), partition_count=1)
    gateway.controller.answers["CreateTopics"] = lambda _: CreateTopicsResponse(topics=[created])
    twice = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    row = {"name": "new", "num_partitions": 1, "replication_factor": 1, "configs": twice}
    answer = await gateway.ask(CREATE_TOPICS, 7, {"topics": [row], "timeout": 1_000, "validate_only": True})
    (topic,) = answer.topics
    assert topic.topic_id.bytes == topic_id("new")
    assert {each.name: each.value for each in topic.configs}["retention.ms"] == "2", "the last one counts"


async def test_messages_that_are_empty_where_nothing_is_wrong() -> None:
    gateway = Gateway()
    gateway.controller.answers["AlterPartitionReassignments"] = lambda _: (
        AlterPartitionReassignmentsResponse()
    )
    gateway.controller.answers["DescribeQuorum"] = lambda _: DescribeQuorumResponse(leader_id=3)
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    quorum = await gateway.ask(DESCRIBE_QUORUM, 2, {"topics": topics})
    assert (quorum.error_message, quorum.topics[0].partitions[0].error_message) == ("", "")
    assert (await gateway.ask(DESCRIBE_QUORUM, 2, {"topics": []})).error_message == ""
    assert (await gateway.ask(DESCRIBE_SCRAM, 0, {"users": None})).error_message == ""
    quotas = await gateway.ask(DESCRIBE_QUOTAS, 1, {"components": [], "strict": False})
    assert quotas.error_message == ""
    assert (await gateway.ask(REASSIGN, 0, {"timeout": 1_000, "topics": []})).error_message == ""


async def test_an_election_of_an_unknown_type_is_refused_for_every_partition() -> None:
    row = {"topic": "bills", "partitions": [0]}
    body = {"election_type": 2, "topic_partitions": [row], "timeout": 1_000}
    answer = await Gateway().ask(ELECT_LEADERS, 2, body)
    (topic,) = answer.replica_election_results
    assert answer.error_code == ErrorCode.invalid_request
    assert [part.error_code for part in topic.partition_result] == [ErrorCode.invalid_request]
    answer = await Gateway().ask(ELECT_LEADERS, 2, {**body, "topic_partitions": []})
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.none, ())


def test_the_newest_init_producer_id_is_kafkas_newest_stable_one() -> None:
    assert HANDLERS[INIT_PRODUCER_ID].versions == (0, 5)


async def test_metrics_that_nobody_receives_must_be_whole_all_the_same() -> None:
    gateway = Gateway()
    got = await gateway.ask(SUBSCRIBE, 0, {"client_instance_id": None})
    body = {
        "client_instance_id": got.client_instance_id.bytes,
        "subscription_id": got.subscription_id,
        "terminating": False,
        "compression_type": 1,
    }
    answer = await gateway.ask(PUSH, 0, {**body, "metrics": b"not gzip"})
    assert answer.error_code == ErrorCode.invalid_record
    await gateway.ask(SUBSCRIBE, 0, {"client_instance_id": got.client_instance_id.bytes})
    whole = {**body, "metrics": gzip.compress(b"not metrics"), "terminating": True}
    assert (await gateway.ask(PUSH, 0, whole)).error_code == ErrorCode.none


async def test_producers_of_a_topic_that_is_not_there() -> None:
    topics = [{"name": "other", "partition_indexes": [0]}, {"name": "bills", "partition_indexes": [9]}]
    answer = await Gateway().ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})
    parts = [topic.partitions[0] for topic in answer.topics]
    assert [part.error_code for part in parts] == [ErrorCode.unknown_topic_or_partition] * 2
    assert [part.error_message for part in parts] == ["There is no topic other.", None]


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
)
async def test_an_end_that_is_not_known_yet_has_an_older_name(version: int, code: ErrorCode) -> None:
    gateway = Gateway()
    gateway.node(1).answers["ListOffsets"] = lambda _: ListOffsetsResponse(
        results=[ListOffsetsResult(error_code=int(ErrorCode.offset_not_available), offset=-1)]
    )
    topics = [{"name": "bills", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    body = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = await gateway.ask(LIST_OFFSETS, version, body)
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.offset) == (code, -1)
