"""Requests of each protocol meet groups of each type, and administrators see both."""

from __future__ import annotations

import pytest
from migration_driver import MigrationDriver, assignment, subscription

from barnabas.coordinator.groups.core.describe import describe_group, list_groups
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture
def driver() -> MigrationDriver:
    return MigrationDriver(t=2)


def listed(driver: MigrationDriver, states: str = "", types: str = "") -> list[tuple[str, str, str, str]]:
    found = list_groups(driver.shard, set(states.split()), set(types.split()))
    return sorted((group.group_id, group.type, group.state, group.protocol_type) for group in found)


def make(driver: MigrationDriver, what: str) -> None:
    """The group of the table."""
    if what == "simple":
        driver.commit("", -1)
    elif what == "empty classic":
        waiter = driver.join("c", known=False, metadata=subscription("t"))
        driver.advance(60_000)
        reply = driver.replies[waiter]
        assert isinstance(reply, pb.JoinGroupResponse)
        driver.leave(reply.member_id)
    elif what == "classic":
        driver.classic_group(c=assignment({"t": [0]}))
    elif what == "empty consumer":
        driver.enter("x")
        driver.beat("x", -1)
    elif what == "consumer":
        driver.enter("x")
    driver.said()


@pytest.mark.parametrize(
    ("what", "type_after"),
    [
        ("missing", "classic"),
        ("simple", "classic"),
        ("empty classic", "classic"),
        ("classic", "classic"),
        ("empty consumer", "classic"),
        ("consumer", "consumer"),
    ],
)
def test_join_group(driver: MigrationDriver, what: str, type_after: str) -> None:
    make(driver, what)
    driver.join("j", known=False, metadata=subscription("t"))
    assert [kind for _, kind, _, _ in listed(driver)] == [type_after]
    driver.advance(70_000)
    codes = [reply.error_code for reply in driver.replies.values() if isinstance(reply, pb.JoinGroupResponse)]
    assert not any(codes)


@pytest.mark.parametrize(
    "what", ["missing", "simple", "empty classic", "classic", "empty consumer", "consumer"]
)
def test_consumer_group_heartbeat_with_epoch_0(driver: MigrationDriver, what: str) -> None:
    make(driver, what)
    assert driver.enter("n").error_code == 0
    assert [kind for _, kind, _, _ in listed(driver)] == ["consumer"]
    assert not driver.shard.stored


@pytest.mark.parametrize("what", ["missing", "simple", "empty classic", "classic"])
def test_consumer_group_heartbeat_with_another_epoch(driver: MigrationDriver, what: str) -> None:
    make(driver, what)
    for epoch in (1, -1, -2):
        assert driver.beat("n", epoch, instance="i").error_code == ErrorCode.group_id_not_found


@pytest.mark.parametrize("what", ["empty consumer", "consumer"])
def test_other_classic_requests_of_a_consumer_group(driver: MigrationDriver, what: str) -> None:
    make(driver, what)
    driver.sync("x", 2)
    driver.heartbeat("x", 2)
    driver.leave("nobody")
    assert driver.said() == [
        "sync x <- UNKNOWN_MEMBER_ID",
        "heartbeat x <- UNKNOWN_MEMBER_ID",
        "leave nobody <- UNKNOWN_MEMBER_ID",
    ]


def test_a_consumer_group_is_dead_to_who_describes_classic_ones(driver: MigrationDriver) -> None:
    make(driver, "consumer")
    described = describe_group(driver.shard, "g")
    assert (described.error_code, described.state) == (ErrorCode.group_id_not_found, "Dead")
    assert described.error_message == "Group g is not a classic group."


def test_a_classic_group_is_not_found_by_who_describes_consumer_groups(driver: MigrationDriver) -> None:
    make(driver, "classic")
    described = driver.description()
    assert described.error_code == ErrorCode.group_id_not_found
    assert described.error_message == "Group g is not a consumer group."
    assert driver.description("h").error_message == "Group h not found."


def test_lists_go_by_states_and_types(driver: MigrationDriver) -> None:
    make(driver, "consumer")
    driver.enter("y", group="h")
    driver.beat("y", -1, group="h")
    driver.set_times(assignment_interval_ms=10_000)
    driver.enter("z", group="i")
    driver.enter("w", group="i")
    consumers = [
        ("g", "consumer", "Stable", "consumer"),
        ("h", "consumer", "Empty", "consumer"),
        ("i", "consumer", "Assigning", "consumer"),
    ]
    assert listed(driver) == listed(driver, types="consumer") == consumers
    assert listed(driver, types="classic") == listed(driver, types="nonsense") == []
    assert listed(driver, states="empty") == [consumers[1]]
    assert listed(driver, states="assigning stable nonsense", types="consumer") == [
        consumers[0],
        consumers[2],
    ]
    assert listed(driver, states="nonsense") == []
