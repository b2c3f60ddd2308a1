"""Administrators' requests: DeleteGroups, OffsetDelete, DeleteRecords, DescribeLogDirs, DescribeProducers,
AlterConfigs, ListConfigResources, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_harness import (
    ONE_BROKER_LISTENER,
    Gateway,
    config_record,
    node_record,
    small_cluster,
    topic_id,
)

from barnabas.controller.core.elect_leaders import elect_leaders
from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import controller_pb2, coordinator_pb2
from barnabas.messages import storage_pb2 as pb
from barnabas.messages.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import partition_key

DELETE_RECORDS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, DELETE_GROUPS = 21, 33, 35, 42
ELECT_LEADERS, ALTER_REASSIGNMENTS = 43, 45
LIST_REASSIGNMENTS, OFFSET_DELETE, DESCRIBE_PRODUCERS, LIST_CONFIG_RESOURCES = 46, 47, 61, 74


@pytest.mark.parametrize("version", range(3))
async def test_delete_groups(version: int) -> None:
    gateway = Gateway()
    gateway.coordinator.answers["DeleteGroups"] = lambda message: coordinator_pb2.DeleteGroupsResponse(
        groups=[
            coordinator_pb2.DeletedGroup(group_id=name, error_code=68 if name == "busy" else 0)
            for name in message.group_ids
        ]
    )
    answer = await gateway.ask(DELETE_GROUPS, version, {"groups_names": ["busy", "idle", "busy"]})
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        ("busy", ErrorCode.non_empty_group),
        ("idle", ErrorCode.none),
    ]


def deleting(gateway: Gateway, seconds: float = 0.0) -> None:
    """The coordinator takes so long for each call."""

    async def delete(message: Any) -> coordinator_pb2.DeleteGroupsResponse:
        await asyncio.sleep(seconds)
        rows = [coordinator_pb2.DeletedGroup(group_id=name) for name in message.group_ids]
        return coordinator_pb2.DeleteGroupsResponse(groups=rows)

    gateway.coordinator.answers["DeleteGroups"] = delete


async def test_many_groups_are_deleted_so_many_at_a_time() -> None:
    gateway = Gateway()
    deleting(gateway)
    names = [f"g{index}" for index in range(1_000)]
    answer = await gateway.ask(DELETE_GROUPS, 2, {"groups_names": names})
    assert [(row.group_id, row.error_code) for row in answer.results] == [(name, 0) for name in names]
    calls = [list(message.group_ids) for _, message, _ in gateway.coordinator.calls]
    assert [name for call in calls for name in call] == names
    assert {len(call) for call in calls} == {limits.KEYS_AT_A_TIME}


async def test_groups_that_are_not_deleted_in_time_are_to_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CALL_TIMEOUT_SECONDS", 0.05)
    gateway = Gateway()
    deleting(gateway, 0.06)
    names = [f"g{index}" for index in range(limits.KEYS_AT_A_TIME + 1)]
    answer = await gateway.ask(DELETE_GROUPS, 2, {"groups_names": names})
    codes = [row.error_code for row in answer.results]
    assert codes == [0] * limits.KEYS_AT_A_TIME + [ErrorCode.coordinator_not_available]
    assert len(gateway.coordinator.calls) == 1


async def test_no_coordinator() -> None:
    answer = await Gateway().ask(DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert answer.results[0].error_code == ErrorCode.coordinator_not_available
    answer = await Gateway().ask(OFFSET_DELETE, 0, {"group_id": "g", "topics": []})
    assert answer.error_code == ErrorCode.coordinator_not_available


async def test_offset_delete_asks_for_partitions_that_exist() -> None:
    gateway = Gateway()
    subscribed = coordinator_pb2.OffsetCommitPartitionResult(partition=0, error_code=86)
    deleted = coordinator_pb2.OffsetCommitPartitionResult(partition=1)
    gateway.coordinator.answers["OffsetDelete"] = lambda _: coordinator_pb2.OffsetDeleteResponse(
        topics=[coordinator_pb2.OffsetCommitTopicResult(name="orders", partitions=[subscribed, deleted])]
    )
    body = {
        "group_id": "g",
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": index} for index in (0, 1, 3, -1)]},
            {"name": "unknown", "partitions": [{"partition_index": 0}]},
        ],
    }
    answer = await gateway.ask(OFFSET_DELETE, 0, body)
    codes = [[row.error_code for row in topic.partitions] for topic in answer.topics]
    assert codes == [[86, 0, 3, 3], [3]]
    ((_, message, _),) = gateway.coordinator.calls
    assert [(topic.name, list(topic.partitions)) for topic in message.topics] == [("orders", [0, 1])]
    gateway.coordinator.answers["OffsetDelete"] = lambda _: coordinator_pb2.OffsetDeleteResponse(
        error_code=69
    )
    answer = await gateway.ask(OFFSET_DELETE, 0, body)
    assert (answer.error_code, answer.topics) == (ErrorCode.group_id_not_found, ())


@pytest.mark.parametrize("version", range(3))
async def test_delete_records_at_the_leaders(version: int) -> None:
    gateway = Gateway()
    first = gateway.node(1)
    waits_ms: list[int] = []

    def delete(message: pb.DeleteRecordsRequest) -> pb.DeleteRecordsResponse:
        waits_ms.append(message.timeout_ms)
        results = [pb.DeleteRecordsResult(low_watermark=item.before_offset) for item in message.partitions]
        return pb.DeleteRecordsResponse(results=results)

    first.answers["DeleteRecords"] = delete
    partitions = [{"partition_index": index, "offset": 10 + index} for index in (0, 1, 2, 9)]
    body = {"topics": [{"name": "orders", "partitions": partitions}], "timeout": 1000}
    (topic,) = (await gateway.ask(DELETE_RECORDS, version, body)).topics
    assert [(row.partition_index, row.low_watermark, row.error_code) for row in topic.partitions] == [
        (0, 10, ErrorCode.none),
        (1, -1, ErrorCode.not_leader_or_follower),
        (2, -1, ErrorCode.not_leader_or_follower),
        (9, -1, ErrorCode.unknown_topic_or_partition),
    ]
    assert waits_ms == [1000]


async def test_describe_producers() -> None:
    gateway = Gateway()
    producer = pb.ProducerDescription(
        producer_id=7, producer_epoch=2, last_sequence=4, last_timestamp_ms=5, coordinator_epoch=-1,
        current_transaction_start_offset=-1,
    )  # fmt: skip
    gateway.node(1).answers["DescribeProducers"] = lambda _: pb.DescribeProducersResponse(
        results=[pb.PartitionProducers(producers=[producer])]
    )
    topics = [{"name": name, "partition_indexes": [0]} for name in ("orders", "unknown", "no name")]
    answer = await gateway.ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})
    rows = [topic.partitions[0] for topic in answer.topics]
    assert [row.error_code for row in rows] == [0, 3, ErrorCode.invalid_topic_exception]
    (shown,) = rows[0].active_producers
    assert (shown.producer_id, shown.producer_epoch, shown.last_sequence, shown.last_timestamp) == (
        7,
        2,
        4,
        5,
    )
    assert (shown.coordinator_epoch, shown.current_txn_start_offset) == (-1, -1)


def answering_log_dirs(gateway: Gateway, node_id: int, path: str) -> Any:
    link = gateway.node(node_id)
    partition = pb.LogDirPartition(topic="orders", partition=node_id - 1, size_bytes=100)
    described = pb.LogDirDescription(path=path, total_bytes=9, usable_bytes=4, partitions=[partition])
    link.answers["DescribeLogDirs"] = lambda _: pb.DescribeLogDirsResponse(log_dirs=[described])
    return link


@pytest.mark.parametrize("version", range(1, 6))
async def test_log_dirs_of_the_broker_asked(version: int) -> None:
    gateway = Gateway()
    first, second = answering_log_dirs(gateway, 1, "/a"), answering_log_dirs(gateway, 2, "/a")
    answer = await gateway.ask(DESCRIBE_LOG_DIRS, version, {"topics": None})
    (row,) = answer.results
    assert (row.error_code, row.log_dir, row.topics[0].name) == (0, "/a", "orders")
    shown = row.topics[0].partitions[0]
    assert (shown.partition_index, shown.partition_size, shown.is_future_key) == (0, 100, False)
    if version >= 4:
        assert (row.total_bytes, row.usable_bytes) == (9, 4)
    assert (first.calls[0][1].all_partitions, second.calls) == (True, [])
    topics = [{"topic": "orders", "partitions": [0, 1]}, {"topic": "unknown", "partitions": [0]}]
    await gateway.ask(DESCRIBE_LOG_DIRS, version, {"topics": topics})
    message = first.calls[1][1]
    assert not message.all_partitions
    asked = [(item.topic_id, item.partition) for item in message.partitions]
    assert asked == [(topic_id("orders"), 0), (topic_id("orders"), 1)]


async def test_log_dirs_of_all_nodes_where_one_broker_stands_for_them() -> None:
    gateway = Gateway(listener=ONE_BROKER_LISTENER)
    answering_log_dirs(gateway, 1, "/a")
    answer = await gateway.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})
    assert (answer.error_code, len(answer.results)) == (ErrorCode.broker_not_available, 1)
    answering_log_dirs(gateway, 2, "/b")
    answer = await gateway.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})
    assert (answer.error_code, [row.log_dir for row in answer.results]) == (0, ["/a", "/b"])
    answering_log_dirs(gateway, 2, "/a")
    (row,) = (await gateway.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})).results
    assert (row.total_bytes, row.usable_bytes) == (18, 8)
    assert [shown.partition_index for shown in row.topics[0].partitions] == [0, 1]


async def test_futures_and_cordons_are_shown() -> None:
    gateway = Gateway()
    link = gateway.node(1)
    future = pb.LogDirPartition(topic="orders", partition=0, size_bytes=5, offset_lag=7, is_future=True)
    described = [
        pb.LogDirDescription(path="/a", partitions=[future]),
        pb.LogDirDescription(path="/b", is_cordoned=True),
    ]
    link.answers["DescribeLogDirs"] = lambda _: pb.DescribeLogDirsResponse(log_dirs=described)
    answer = await gateway.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})
    assert [(row.log_dir, row.is_cordoned) for row in answer.results] == [("/a", False), ("/b", True)]
    shown = answer.results[0].topics[0].partitions[0]
    assert (shown.is_future_key, shown.offset_lag, shown.partition_size) == (True, 7, 5)
    assert not hasattr((await gateway.ask(DESCRIBE_LOG_DIRS, 4, {"topics": None})).results[0], "is_cordoned")


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_answers_once_the_image_has_them(version: int) -> None:
    gateway = Gateway()
    refused = controller_pb2.ResourceResult(error_code=40, error_message="why")
    gateway.controller.answers["AlterConfigs"] = lambda _: controller_pb2.AlterConfigsResponse(
        results=[controller_pb2.ResourceResult(), refused]
    )
    configs = [{"name": "retention.ms", "value": "7"}, {"name": "segment.ms", "value": "8"}]
    resources = [
        {"resource_type": 2, "resource_name": name, "configs": configs} for name in ("orders", "bills")
    ]
    body = {"resources": resources, "validate_only": False}
    asking = asyncio.create_task(gateway.ask(ALTER_CONFIGS, version, body))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    gateway.metadata.apply(config_record(2, "orders", {"retention.ms": "7", "segment.ms": "8"}))
    rows = (await asking).responses
    assert [(row.resource_name, row.error_code, row.error_message) for row in rows] == [
        ("orders", 0, None),
        ("bills", ErrorCode.invalid_config, "why"),
    ]
    await gateway.ask(ALTER_CONFIGS, version, {**body, "validate_only": True})
    assert gateway.controller.calls[1][1].validate_only


async def test_list_config_resources() -> None:
    gateway = Gateway()
    answer = await gateway.ask(LIST_CONFIG_RESOURCES, 0, {})
    assert (answer.error_code, answer.config_resources) == (0, ())

    async def listed(*types: int) -> set[tuple[int, str]]:
        answer = await gateway.ask(LIST_CONFIG_RESOURCES, 1, {"resource_types": types})
        assert answer.error_code == 0
        return {(row.resource_type, row.resource_name) for row in answer.config_resources}

    brokers = {(4, "1"), (4, "2")}
    assert await listed(4) == brokers
    assert await listed(16, 32) == set()
    topics = {(2, name) for name in ("orders", "bills", "__consumer_offsets")}
    assert await listed() == topics | brokers | {(8, "1"), (8, "2")}
    answer = await gateway.ask(LIST_CONFIG_RESOURCES, 1, {"resource_types": [2, 3]})
    assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())


async def test_nothing_is_being_reassigned() -> None:
    for topics in (None, [{"name": "orders", "partition_indexes": [0]}, {"name": "unknown"}]):
        answer = await Gateway().ask(LIST_REASSIGNMENTS, 0, {"timeout": 1000, "topics": topics})
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, ())


def electing(records: list[MetadataRecord] | None = None) -> Gateway:
    """A gateway whose controller decides by the same metadata, and stores what it decides."""
    gateway = Gateway(records)

    def elect(message: controller_pb2.ElectLeadersRequest) -> controller_pb2.ElectLeadersResponse:
        decision = elect_leaders(gateway.metadata.image, message)
        asyncio.get_running_loop().call_soon(gateway.metadata.apply, *decision.records)
        return decision.response

    gateway.controller.answers["ElectLeaders"] = elect
    return gateway


@pytest.mark.parametrize("version", range(3))
async def test_elections_by_partition(version: int) -> None:
    gateway = electing()
    wanted = [{"topic": "orders", "partitions": [0, 2, 9]}, {"topic": "unknown", "partitions": [0]}]
    answer = await gateway.ask(ELECT_LEADERS, version, {"topic_partitions": wanted, "timeout": 1000})
    found = {
        (topic.topic, row.partition_id): (row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }
    unknown = ErrorCode.unknown_topic_or_partition
    assert found == {
        ("orders", 0): (
            ErrorCode.election_not_needed,
            "Leader election not needed for topic partition.",
        ),
        ("orders", 2): (ErrorCode.none, None),
        ("orders", 9): (unknown, "No such partition as orders-9"),
        ("unknown", 0): (unknown, "No such topic as unknown"),
    }
    leaders = [partition.leader for partition in gateway.metadata.image.topics["orders"].partitions]
    assert leaders == [1, 2, 1], "the answer comes when the gateway knows"


async def test_elections_of_all_leaders_tell_of_those_that_needed_one() -> None:
    gateway = electing([*small_cluster(), node_record(1, fenced=True)])
    body = {"topic_partitions": None, "election_type": 1, "timeout": 1000}
    answer = await gateway.ask(ELECT_LEADERS, 2, body)
    found = {
        topic.topic: [(row.partition_id, row.error_code) for row in topic.partition_result]
        for topic in answer.replica_election_results
    }
    nobody = ErrorCode.eligible_leaders_not_available
    assert found == {"__consumer_offsets": [], "bills": [], "orders": [(2, nobody)]}


async def test_elections_of_an_unknown_type_or_of_nothing() -> None:
    gateway = electing()
    wanted = [{"topic": "orders", "partitions": [0]}]
    for topics in (None, wanted):
        body = {"topic_partitions": topics, "election_type": 7, "timeout": 1000}
        answer = await gateway.ask(ELECT_LEADERS, 2, body)
        assert answer.error_code == ErrorCode.invalid_request
    answer = await gateway.ask(ELECT_LEADERS, 2, {**body, "topic_partitions": []})
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.none, ())
    assert gateway.controller.calls == []


async def test_reassignments_are_the_controller_s_to_decide() -> None:
    gateway = Gateway()
    asked: list[AlterPartitionReassignmentsRequest] = []

    def decide(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        asked.append(request)
        refused = ResourceResult(error_code=int(ErrorCode.invalid_replica_assignment), error_message="why")
        return AlterPartitionReassignmentsResponse(results=[ResourceResult(), refused, ResourceResult()])

    gateway.controller.answers["AlterPartitionReassignments"] = decide
    topics = [
        {
            "name": "bills",
            "partitions": [
                {"partition_index": 0, "replicas": [1, 2]},
                {"partition_index": 7, "replicas": []},
            ],
        },
        {"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]},
    ]
    body = {"topics": topics, "allow_replication_factor_change": False, "timeout": 1000}
    answer = await gateway.ask(ALTER_REASSIGNMENTS, 1, body)
    rows = [
        (topic.name, row.partition_index, row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    ]
    assert rows == [
        ("bills", 0, 0, None),
        ("bills", 7, ErrorCode.invalid_replica_assignment, "why"),
        ("orders", 0, 0, None),
    ]
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, False)
    wanted = [(each.topic, each.partition, list(each.replicas), each.cancel) for each in asked[0].partitions]
    assert wanted == [("bills", 0, [1, 2], False), ("bills", 7, [], False), ("orders", 0, [], True)]
    assert not asked[0].allow_replication_factor_change


async def test_partitions_that_move_are_listed_and_others_left_out() -> None:
    gateway = Gateway()
    orders = gateway.metadata.image.topics["orders"]
    moving = PartitionRecord()
    moving.CopyFrom(orders.partitions[1])
    moving.replicas[:], moving.adding_replicas[:], moving.removing_replicas[:] = [2, 3, 1], [3], [1]
    key = partition_key(orders.topic_id, 1)
    gateway.metadata.apply(MetadataRecord(key=key, partition=moving))
    for topics in (None, [{"name": "orders", "partition_indexes": [0, 1, 9]}, {"name": "unknown"}]):
        answer = await gateway.ask(LIST_REASSIGNMENTS, 0, {"timeout": 1000, "topics": topics})
        (topic,) = answer.topics
        (row,) = topic.partitions
        assert (topic.name, row.partition_index, row.replicas) == ("orders", 1, (2, 3, 1))
        assert (row.adding_replicas, row.removing_replicas) == ((3,), (1,))
