"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as a coordinator answers them: what it refuses before it looks at
a group, what of the settings counts, and what a log that fails leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator_node import Node, running, until_writing
from log_in_memory import LogInMemory
from migration_driver import subscription
from prometheus_client import generate_latest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.groups import GroupTimes
from barnabas.coordinator.groups.consumer.settings import GroupSettings
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.config import ConfigError
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, GROUP_RESOURCE
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, config_key

REFUSED = ErrorCode.coordinator_load_in_progress


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MAX", 0)


def entry(member: str = "a", epoch: int = 0, **fields: Any) -> pb.ConsumerGroupHeartbeatRequest:
    """A first heartbeat; fields that are None are absent."""
    full = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": pb.SubscribedTopics(names=["t"]),
        "topic_partitions": pb.OwnedPartitions(),
    } | fields
    return pb.ConsumerGroupHeartbeatRequest(
        **{name: value for name, value in full.items() if value is not None}
    )


OWNED = pb.OwnedPartitions(topics=[pb.TopicIdPartitions(topic_id=bytes(16), partitions=[0])])


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request, "GroupId can't be empty."),
        ({"member": "", "epoch": 1}, ErrorCode.invalid_request, "MemberId can't be empty."),
        ({"member": "", "epoch": -1}, ErrorCode.invalid_request, "MemberId can't be empty."),
        ({"instance_id": ""}, ErrorCode.invalid_request, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.invalid_request, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request, "RebalanceTimeoutMs must be"),
        ({"topic_partitions": None}, ErrorCode.invalid_request, "TopicPartitions must be empty"),
        ({"topic_partitions": OWNED}, ErrorCode.invalid_request, "TopicPartitions must be empty"),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request, "Either SubscribedTopicNames"),
        ({"epoch": -2}, ErrorCode.invalid_request, "InstanceId can't be null."),
        ({"epoch": -3}, ErrorCode.invalid_request, "MemberEpoch is invalid."),
        (
            {"server_assignor": "sticky"},
            ErrorCode.unsupported_assignor,
            "Supported assignors: uniform, range.",
        ),
        ({"member": "a" * 40_000}, ErrorCode.invalid_request, "32767 bytes"),
        (
            {"subscribed_topic_names": pb.SubscribedTopics(names=["t" * 249] * 900)},
            ErrorCode.invalid_request,
            "200000 characters",
        ),
        ({"epoch": 5}, ErrorCode.group_id_not_found, "not found"),
    ],
)
async def test_what_a_heartbeat_must_say(fields: dict[str, Any], code: ErrorCode, message: str) -> None:
    node = Node("a", LogInMemory())
    node.see("a")
    async with running(node):
        response = await node.calls.ConsumerGroupHeartbeat(entry(**fields))
        assert response.error_code == code
        assert message in response.error_message
        assert (await node.calls.ListGroups(pb.ListGroupsRequest())).groups == []


async def test_a_member_joins_is_described_and_is_there_after_a_handover() -> None:
    log = LogInMemory()
    first, second = Node("a", log), Node("b", log)
    first.see("a", topics=("t",))
    async with running(first, second):
        joined = await first.calls.ConsumerGroupHeartbeat(entry())
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "a", 2)
        assert joined.heartbeat_interval_ms == 5000
        metrics = generate_latest(first.registry).decode()
        assert 'kafka_server_group_coordinator_metrics_group_count{protocol="consumer"} 1.0' in metrics
        assert 'kafka_server_group_coordinator_metrics_consumer_group_count{state="stable"} 1.0' in metrics
        log.epochs[0] = 1
        for node in (first, second):
            node.see("b", epoch=1, topics=("t",))
        await until_writing(second)
        asked = pb.ConsumerGroupDescribeRequest(group_ids=["g", "", "h"])
        group, empty, missing = (await second.calls.ConsumerGroupDescribe(asked)).groups
        assert [(member.member_id, member.member_epoch) for member in group.members] == [("a", 2)]
        assert (group.state, group.assignor_name) == ("Stable", "uniform")
        for states, types in ((["EMPTY", " sTable "], []), ([], ["Consumer", "?"])):
            listed = await second.calls.ListGroups(pb.ListGroupsRequest(states=states, types=types))
            assert [group.group_id for group in listed.groups] == ["g"]
        assert (empty.error_code, missing.error_code) == (
            ErrorCode.invalid_group_id,
            ErrorCode.group_id_not_found,
        )
        beaten = await second.calls.ConsumerGroupHeartbeat(entry(epoch=2))
        assert beaten.error_code == ErrorCode.none
        (refused,) = (
            await first.calls.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=["g"]))
        ).groups
        assert refused.error_code == ErrorCode.not_coordinator
        assert (await first.calls.ConsumerGroupHeartbeat(entry())).error_code == ErrorCode.not_coordinator


async def test_a_long_answer_ends_early() -> None:
    node = Node("a", LogInMemory())
    node.see("a")
    async with running(node):
        asked = pb.ConsumerGroupDescribeRequest(group_ids=["g", "h", "i"], bytes_max=1)
        assert len((await node.calls.ConsumerGroupDescribe(asked)).groups) == 1


async def test_where_the_protocol_is_not_served() -> None:
    config = CoordinatorConfig(coordinator_id="a", group_coordinator_rebalance_protocols=("classic",))
    node = Node("a", LogInMemory(), config)
    node.see("a")
    async with running(node):
        response = await node.calls.ConsumerGroupHeartbeat(entry())
        assert response.error_code == ErrorCode.unsupported_version
        asked = pb.ConsumerGroupDescribeRequest(group_ids=["g"])
        (group,) = (await node.calls.ConsumerGroupDescribe(asked)).groups
        assert group.error_code == ErrorCode.unsupported_version


async def test_a_log_that_takes_nothing_costs_no_member_and_lets_nobody_in() -> None:
    log = LogInMemory()
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert (await node.calls.ConsumerGroupHeartbeat(entry())).error_code == ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert (await node.calls.ConsumerGroupHeartbeat(entry("b"))).error_code == REFUSED
        assert node.state() is PartitionState.READ_ONLY
        assert (await node.calls.ConsumerGroupHeartbeat(entry(epoch=2))).error_code == REFUSED
        asked = pb.ConsumerGroupDescribeRequest(group_ids=["g"])
        (group,) = (await node.calls.ConsumerGroupDescribe(asked)).groups
        assert "a" in [member.member_id for member in group.members]
        node.clock.advance(3_600_000)
        await node.coordinator.partitions.on_time()
        log.fail_with = None
        await until_writing(node)
        assert (await node.calls.ConsumerGroupHeartbeat(entry(epoch=2))).error_code == ErrorCode.none
        # What was under way when the log refused has landed; its member may come again.
        assert (await node.calls.ConsumerGroupHeartbeat(entry("b"))).error_code == ErrorCode.none
        node.clock.advance(44_999)
        await node.coordinator.partitions.on_time()
        (group,) = (await node.calls.ConsumerGroupDescribe(asked)).groups
        assert [member.member_id for member in group.members] == ["a", "b"]


async def test_a_lost_answer_of_the_log_is_no_second_member() -> None:
    log = LogInMemory()
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.lose_answer = True
        response = await node.calls.ConsumerGroupHeartbeat(entry())
        assert response.error_code in (ErrorCode.none, ErrorCode.coordinator_not_available, REFUSED)
        await until_writing(node)
        response = await node.calls.ConsumerGroupHeartbeat(entry())
        assert (response.error_code, response.member_epoch) == (ErrorCode.none, 2)


# -- settings -----------------------------------------------------------------------------------------------


def image_with(revision: int, *settings: tuple[int, str, dict[str, str]]) -> MetadataImage:
    records = [
        MetadataRecord(key=config_key(kind, name), config=ConfigRecord(values=values))
        for kind, name, values in settings
    ]
    return MetadataImage().apply(records, revision)


def test_a_groups_own_settings_count_within_todays_bounds() -> None:
    config = CoordinatorConfig(group_consumer_max_session_timeout_ms=50_000)
    settings = GroupSettings(config)
    assert settings.times_of("g") == GroupTimes()
    own = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.assignment.interval.ms": "0",
        "share.session.timeout.ms": "1",
    }
    new = image_with(1, (GROUP_RESOURCE, "g", own), (BROKER_RESOURCE, "g", own))
    settings.on_image(MetadataImage(), new)
    assert settings.times_of("g") == GroupTimes(50_000, 7_000, 0)
    assert settings.times_of("h") == GroupTimes()
    settings.on_image(new, image_with(2))
    assert settings.times_of("g") == GroupTimes()


def test_the_assignment_interval_of_all_can_change_while_brokers_run() -> None:
    settings = GroupSettings(CoordinatorConfig())
    name = "group.consumer.assignment.interval.ms"
    of_all = (BROKER_RESOURCE, "", {name: "2500"})
    settings.on_image(MetadataImage(), image_with(1, of_all, (GROUP_RESOURCE, "g", {})))
    assert settings.times_of("g").assignment_interval_ms == 2500
    assert settings.times_of("h").assignment_interval_ms == 2500


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"group_consumer_session_timeout_ms": 44_999}, "group.consumer.session.timeout.ms=44999"),
        ({"group_consumer_heartbeat_interval_ms": 15_001}, "group.consumer.heartbeat.interval.ms=15001"),
        ({"group_consumer_assignment_interval_ms": -1}, "group.consumer.assignment.interval.ms=-1"),
        (
            {
                "group_consumer_session_timeout_ms": 5_000,
                "group_consumer_min_session_timeout_ms": 1_000,
            },
            "must be less than",
        ),
        ({"group_consumer_assignors": ()}, "give one or more of range, uniform"),
        ({"group_consumer_assignors": ("sticky",)}, "sticky"),
        ({"group_consumer_migration_policy": "sideways"}, "sideways"),
        ({"group_consumer_max_size": 0}, "group.consumer.max.size=0"),
        ({"group_consumer_regex_refresh_interval_ms": 9_999}, "at least 10000"),
    ],
)
def test_settings_that_contradict_each_other(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        CoordinatorConfig(**fields)


def test_policies_are_known_in_any_case() -> None:
    assert CoordinatorConfig(group_consumer_migration_policy="UPGRADE").may_upgrade
    assert not CoordinatorConfig(group_consumer_migration_policy="UPGRADE").may_downgrade
    assert CoordinatorConfig().may_upgrade
    assert CoordinatorConfig().may_downgrade


async def test_a_former_coordinator_says_of_nobody_that_he_is_no_member() -> None:
    """A consumer that is told so ends; the present coordinator may know it well."""
    log = LogInMemory()
    node = Node("a", log)
    node.see("a")
    async with running(node):
        await until_writing(node)
        await node.calls.ConsumerGroupHeartbeat(entry("b"))
        request = pb.OffsetFetchRequest(group_id="g", member_id="c", member_epoch=3, all_topics=True)
        assert (await node.calls.OffsetFetch(request)).error_code == ErrorCode.unknown_member_id
        log.epochs[0] = 1
        assert (await node.calls.OffsetFetch(request)).error_code == ErrorCode.not_coordinator
        assert (await node.calls.OffsetFetch(request)).error_code == REFUSED


async def test_a_former_coordinator_does_not_tell_a_classic_member_what_it_has() -> None:
    """Another member may have it by now."""
    log = LogInMemory()
    node = Node("a", log)
    node.see("a")
    async with running(node):
        await until_writing(node)
        await node.calls.ConsumerGroupHeartbeat(entry("b"))
        joined = await node.calls.JoinGroup(
            pb.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[pb.GroupProtocol(name="range", metadata=subscription("t"))],
            )
        )
        assert joined.error_code == ErrorCode.none
        request = pb.SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        assert (await node.calls.SyncGroup(request)).error_code == ErrorCode.none
        log.epochs[0] = 1
        assert (await node.calls.SyncGroup(request)).error_code == ErrorCode.not_coordinator
