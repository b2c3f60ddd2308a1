"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: what the coordinator is told, and what the client hears."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from gateway_harness import Gateway, topic_id

from barnabas.gateway.answers.authorized_operations import GROUP_OPERATIONS, NOT_ASKED_FOR
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.metadata_pb2 import FeatureRecord, MetadataRecord
from barnabas.metadata.features import GROUP_VERSION
from barnabas.metadata.image import feature_key

BEAT, DESCRIBE, COMMIT = 68, 69, 8
ORDERS = topic_id("orders")


def gateway_with(level: int = 1, **answers: Any) -> Gateway:
    gateway = Gateway()
    feature = FeatureRecord(name=GROUP_VERSION, level=level)
    gateway.metadata.apply(MetadataRecord(key=feature_key(GROUP_VERSION), feature=feature))
    for method, answer in answers.items():
        gateway.coordinator.answers[method] = lambda _, answer=answer: answer
    return gateway


def beat_body(**fields: Any) -> dict[str, Any]:
    return {"group_id": "g", "member_id": "m", "member_epoch": 3, "rebalance_timeout": -1} | fields


@pytest.mark.parametrize("version", [0, 1])
async def test_a_heartbeat_that_says_everything(version: int) -> None:
    response = pb.ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=4,
        heartbeat_interval_ms=5000,
        assignment=pb.OwnedPartitions(topics=[pb.TopicIdPartitions(topic_id=ORDERS, partitions=[1, 2])]),
    )
    gateway = gateway_with(ConsumerGroupHeartbeat=response)
    answer = await gateway.ask(
        BEAT,
        version,
        beat_body(
            instance_id="i",
            rack_id="r",
            rebalance_timeout=60_000,
            subscribed_topic_names=["orders", "bills"],
            subscribed_topic_regex="o.*",
            server_assignor="range",
            topic_partitions=[{"topic_id": ORDERS, "partitions": [0]}],
        ),
    )
    ((_, message, _),) = gateway.coordinator.calls
    assert (message.group_id, message.member_id, message.member_epoch) == ("g", "m", 3)
    assert (message.instance_id, message.rack_id, message.server_assignor) == ("i", "r", "range")
    assert message.rebalance_timeout_ms == 60_000
    assert list(message.subscribed_topic_names.names) == ["orders", "bills"]
    assert message.HasField("subscribed_topic_regex") == (version >= 1)
    ((owned),) = message.topic_partitions.topics
    assert (owned.topic_id, list(owned.partitions)) == (ORDERS, [0])
    assert (message.client.client_id, message.client.client_host) == ("test", "/10.1.2.3")
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_id, answer.member_epoch) == ("m", 4)
    assert answer.heartbeat_interval.total_seconds() == 5
    ((assigned),) = answer.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (uuid.UUID(bytes=ORDERS), (1, 2))


async def test_what_is_not_said_is_absent_and_what_is_empty_is_not() -> None:
    response = pb.ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=1)
    gateway = gateway_with(ConsumerGroupHeartbeat=response)
    answer = await gateway.ask(BEAT, 1, beat_body(subscribed_topic_names=None, topic_partitions=None))
    assert answer.assignment is None
    await gateway.ask(BEAT, 1, beat_body(subscribed_topic_names=[], topic_partitions=[]))
    silent, saying = (message for _, message, _ in gateway.coordinator.calls)
    fields = ("subscribed_topic_names", "topic_partitions")
    assert [silent.HasField(field) for field in fields] == [False, False]
    assert [saying.HasField(field) for field in fields] == [True, True]
    optional = ("instance_id", "rack_id", "server_assignor", "subscribed_topic_regex")
    assert not any(silent.HasField(field) for field in optional)
    assert silent.rebalance_timeout_ms == -1


async def test_an_empty_assignment_is_not_none() -> None:
    response = pb.ConsumerGroupHeartbeatResponse(member_id="m", assignment=pb.OwnedPartitions())
    answer = await gateway_with(ConsumerGroupHeartbeat=response).ask(BEAT, 1, beat_body())
    assert answer.assignment.topic_partitions == ()


async def test_what_is_wrong_is_told_as_the_coordinator_says_it() -> None:
    refused = pb.ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.fenced_member_epoch, error_message="too old"
    )
    answer = await gateway_with(ConsumerGroupHeartbeat=refused).ask(BEAT, 1, beat_body())
    assert (answer.error_code, answer.error_message, answer.member_id) == (110, "too old", None)


async def test_from_version_1_members_name_themselves() -> None:
    response = pb.ConsumerGroupHeartbeatResponse(member_id="given")
    gateway = gateway_with(ConsumerGroupHeartbeat=response)
    assert (await gateway.ask(BEAT, 0, beat_body(member_id="", member_epoch=0))).member_id == "given"
    answer = await gateway.ask(BEAT, 1, beat_body(member_id="", member_epoch=0))
    assert (answer.error_code, answer.error_message) == (42, "MemberId can't be empty.")


@pytest.mark.usefixtures("time_jumps")
async def test_nobody_coordinates() -> None:
    gateway = gateway_with()
    assert (await gateway.ask(BEAT, 1, beat_body())).error_code == ErrorCode.coordinator_not_available
    answer = await gateway.ask(DESCRIBE, 1, {"group_ids": ["g"]})
    assert [group.error_code for group in answer.groups] == [ErrorCode.coordinator_not_available]


@pytest.mark.parametrize("version", [0, 1])
async def test_without_the_feature_there_are_no_such_groups(version: int) -> None:
    gateway = gateway_with(level=0)
    assert (await gateway.ask(BEAT, version, beat_body())).error_code == ErrorCode.unsupported_version
    answer = await gateway.ask(DESCRIBE, version, {"group_ids": ["g", "h"]})
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 35), ("h", 35)]
    assert gateway.coordinator.calls == []


def description() -> pb.ConsumerGroupDescription:
    return pb.ConsumerGroupDescription(
        group_id="g",
        state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[
            pb.ConsumerGroupMemberDescription(
                member_id="m",
                instance_id="i",
                rack_id="r",
                member_epoch=4,
                client=pb.ClientIdentity(client_id="c", client_host="/h"),
                subscribed_topic_names=["orders"],
                subscribed_topic_regex="",
                assignment=[pb.TopicIdPartitions(topic_id=ORDERS, topic_name="orders", partitions=[0])],
                target_assignment=[
                    pb.TopicIdPartitions(topic_id=ORDERS, topic_name="orders", partitions=[1])
                ],
            ),
            pb.ConsumerGroupMemberDescription(member_id="old", is_classic=True),
        ],
    )


@pytest.mark.parametrize("version", [0, 1])
async def test_a_description(version: int) -> None:
    missing = pb.ConsumerGroupDescription(
        group_id="x", error_code=ErrorCode.group_id_not_found, error_message="no"
    )
    gateway = gateway_with(
        ConsumerGroupDescribe=pb.ConsumerGroupDescribeResponse(groups=[description(), missing])
    )
    body = {"group_ids": ["g", "x", "g"], "include_authorized_operations": True}
    answer = await gateway.ask(DESCRIBE, version, body)
    ((_, message, _),) = gateway.coordinator.calls
    assert list(message.group_ids) == ["g", "x"]
    first, second, third = answer.groups
    assert first == third
    assert (first.group_state, first.group_epoch, first.assignment_epoch) == ("Reconciling", 5, 4)
    assert (first.assignor_name, first.authorized_operations) == ("uniform", GROUP_OPERATIONS)
    new, old = first.members
    assert (new.member_id, new.instance_id, new.rack_id, new.member_epoch) == ("m", "i", "r", 4)
    assert (new.client_id, new.client_host) == ("c", "/h")
    assert (new.subscribed_topic_names, new.subscribed_topic_regex) == (("orders",), "")
    assert new.assignment.topic_partitions[0].partitions == (0,)
    assert new.target_assignment.topic_partitions[0].topic_name == "orders"
    assert (old.instance_id, old.rack_id, old.subscribed_topic_regex) == (None, None, None)
    if version >= 1:
        assert [member.member_type for member in first.members] == [1, 0]
    assert (second.error_code, second.error_message) == (69, "no")
    assert second.authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize(("version", "knows"), [(8, False), (9, True), (10, True)])
async def test_the_coordinator_is_told_whether_a_client_knows_member_epochs(
    version: int, knows: bool
) -> None:
    gateway = gateway_with(OffsetCommit=pb.OffsetCommitResponse())
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topics = [{"name": "orders", "topic_id": ORDERS, "partitions": partitions}]
    gateway.coordinator.answers["OffsetCommit"] = lambda message: pb.OffsetCommitResponse(
        topics=[
            pb.OffsetCommitTopicResult(
                name="orders",
                partitions=[
                    pb.OffsetCommitPartitionResult(error_code=ErrorCode.unsupported_version)
                    if not message.knows_member_epochs
                    else pb.OffsetCommitPartitionResult()
                ],
            )
        ]
    )
    body = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": "m", "topics": topics}
    answer = await gateway.ask(COMMIT, version, body)
    assert answer.topics[0].partitions[0].error_code == (0 if knows else 35)
