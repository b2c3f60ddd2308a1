"""Static members (KIP-345) and their restarts (KIP-814), as exact traces."""

from __future__ import annotations

import pytest
from coordinator_driver import ShardDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.states import GroupState


@pytest.fixture
def driver() -> ShardDriver:
    """A stable group of two static members, i (who leads) and j, known as i-1 and j-3."""
    driver = ShardDriver(CoordinatorConfig(group_initial_rebalance_delay_ms=0))
    driver.join("a", instance="i")
    driver.join("b", instance="j")
    driver.join("a", "i-1", instance="i")
    driver.sync("i-1", 2, "i-1=0,j-3=1", instance="i")
    driver.sync("j-3", 2, instance="j")
    assert driver.said()[-2:] == ["sync i-1 <- assignment 0", "sync j-3 <- assignment 1"]
    return driver


def test_a_follower_that_restarts_keeps_its_place(driver: ShardDriver) -> None:
    driver.join("b", instance="j")
    assert driver.said() == [
        "log group g generation 2 [i-1=0,j-11=1]",
        "join b <- generation 2 as j-11, leader i-1, range",
    ]
    driver.sync("j-11", 2, instance="j")
    driver.heartbeat("i-1", 2, instance="i")
    assert driver.said() == ["sync j-11 <- assignment 1", "heartbeat i-1 <- NONE"]


def test_the_old_process_is_fenced(driver: ShardDriver) -> None:
    driver.join("b", instance="j")
    driver.said()
    driver.heartbeat("j-3", 2, instance="j")
    driver.sync("j-3", 2, instance="j")
    driver.commit("j-3", 2, instance="j")
    driver.join("b", "j-3", instance="j")
    driver.leave("j-3", instance="j")
    assert driver.said() == [
        "heartbeat j-3 <- FENCED_INSTANCE_ID",
        "sync j-3 <- FENCED_INSTANCE_ID",
        "commit j-3 <- FENCED_INSTANCE_ID",
        "join b <- FENCED_INSTANCE_ID j-3",
        "leave j-3 <- FENCED_INSTANCE_ID",
    ]
    driver.heartbeat("j-3", 2)
    assert driver.said() == ["heartbeat j-3 <- UNKNOWN_MEMBER_ID"]


def test_a_leader_that_restarts_skips_the_assignment(driver: ShardDriver) -> None:
    driver.join("a", instance="i")
    assert driver.said() == [
        "log group g generation 2 [j-3=1,i-11=0]",
        "join a <- generation 2 as i-11, leader i-11, range, members j-3,i-11, skip",
    ]


def test_a_leader_with_an_old_client_is_not_told_that_it_leads(driver: ShardDriver) -> None:
    driver.join("a", instance="i", skips=False)
    assert driver.said()[1] == "join a <- generation 2 as i-11, leader i-1, range"


def test_a_restart_with_another_protocol_rebalances(driver: ShardDriver) -> None:
    driver.join("a", "i-1", instance="i", protocols="sticky,range")
    driver.join("b", "j-3", instance="j", protocols="sticky,range")
    driver.sync("i-1", 3, "i-1=0,j-3=1", instance="i")
    driver.said()
    driver.join("b", instance="j", protocols="range")
    driver.heartbeat("i-1", 3, instance="i")
    driver.join("a", "i-1", instance="i", protocols="sticky,range")
    assert driver.said() == [
        "heartbeat i-1 <- REBALANCE_IN_PROGRESS",
        "join a <- generation 4 as i-1, leader i-1, range, members i-1,j-17",
        "join b <- generation 4 as j-17, leader i-1, range",
    ]


def test_a_restart_that_the_record_has_no_room_for_changes_nothing(driver: ShardDriver) -> None:
    driver.join("b", instance="j", metadata=b"x" * 2_000_000)
    driver.heartbeat("j-3", 2, instance="j")
    driver.join("b", instance="j")
    assert driver.said() == [
        "join b <- UNKNOWN_SERVER_ERROR",
        "heartbeat j-3 <- NONE",
        "log group g generation 2 [i-1=0,j-15=1]",
        "join b <- generation 2 as j-15, leader i-1, range",
    ]


def test_a_restart_before_the_assignment_rebalances(driver: ShardDriver) -> None:
    driver.join("a", "i-1", instance="i", protocols="range")
    driver.join("b", "j-3", instance="j", protocols="range")
    driver.said()
    driver.sync("j-3", 3, instance="j")
    driver.join("b", instance="j")
    trace = driver.said()
    assert trace == ["sync j-3 <- FENCED_INSTANCE_ID"]
    driver.sync("i-1", 3, instance="i")
    assert driver.said() == ["sync i-1 <- REBALANCE_IN_PROGRESS"]


def test_a_restart_ends_the_old_process_s_join(driver: ShardDriver) -> None:
    driver.join("b", "j-3", instance="j", protocols="range,sticky")
    driver.join("b", instance="j", protocols="range,sticky")
    assert driver.said() == ["join b <- FENCED_INSTANCE_ID j-3"]
    driver.join("a", "i-1", instance="i")
    assert driver.said() == [
        "join a <- generation 3 as i-1, leader i-1, range, members i-1,j-13",
        "join b <- generation 3 as j-13, leader i-1, range",
    ]


def test_a_static_member_stays_through_a_rebalance_that_it_misses(driver: ShardDriver) -> None:
    driver.join("a", "i-1", instance="i", session=600_000)
    driver.heartbeat("j-3", 2, instance="j")
    for _ in range(6):
        driver.advance(9_999)
        driver.heartbeat("j-3", 2, instance="j")
    driver.said()
    driver.advance(6)
    assert driver.said() == ["join a <- generation 3 as i-1, leader i-1, range, members i-1,j-3"]


def test_an_administrator_removes_an_instance(driver: ShardDriver) -> None:
    driver.leave("", instance="j")
    driver.leave("", instance="nobody")
    driver.leave("")
    assert driver.said() == ["leave  <- NONE", "leave  <- UNKNOWN_MEMBER_ID", "leave  <- UNKNOWN_MEMBER_ID"]
    driver.heartbeat("i-1", 2, instance="i")
    assert driver.said() == ["heartbeat i-1 <- REBALANCE_IN_PROGRESS"]


def test_a_new_coordinator_knows_static_members(driver: ShardDriver) -> None:
    driver.reload()
    driver.heartbeat("j-3", 2, instance="j")
    driver.sync("j-3", 2, instance="j")
    driver.join("b", instance="j")
    trace = driver.said()
    assert trace[:2] == ["heartbeat j-3 <- NONE", "sync j-3 <- assignment 1"]
    assert trace[2].startswith("log group g generation 2 [i-1=0,j-")


@pytest.mark.parametrize("rebalance", [0, -1, 5])
def test_a_rebalance_without_a_time_out_that_nobody_joins_goes_on_in_steps(rebalance: int) -> None:
    driver = ShardDriver(CoordinatorConfig(group_initial_rebalance_delay_ms=0))
    driver.join("a", instance="i")
    driver.join("b", instance="j", rebalance=rebalance)
    driver.join("a", "i-1", instance="i")
    driver.sync("i-1", 2, "i-1=0,j-3=1", instance="i")
    driver.sync("j-3", 2, instance="j")
    driver.leave("i-1", instance="i")
    decisions = driver.decisions
    driver.advance(5_000)
    assert driver.decisions - decisions <= 7
    driver.advance(5_000)
    assert driver.shard.groups["g"].state is GroupState.EMPTY  # at the end of its session
