"""Joining, assigning, leaving and dying, as exact traces of what members are told and what the log gets."""

from __future__ import annotations

import pytest
from coordinator_driver import ShardDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.states import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    UnexpectedEvent,
    next_state,
)


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver(CoordinatorConfig(group_initial_rebalance_delay_ms=3000))


def test_first_generation_waits_for_the_initial_delay_and_grows_with_it(driver: ShardDriver) -> None:
    driver.join("a")
    driver.join("a", "a-1")
    driver.advance(2999)
    driver.join("b", known=False)
    driver.advance(1)
    assert driver.said() == ["join a <- MEMBER_ID_REQUIRED a-1"]
    driver.advance(2999)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said() == [
        "join a <- generation 1 as a-1, leader a-1, range, members a-1,b-6",
        "join b <- generation 1 as b-6, leader a-1, range",
    ]
    driver.sync("b-6", 1)
    driver.sync("a-1", 1, "a-1=0,b-6=1")
    assert driver.said() == [
        "log group g generation 1 [a-1=0,b-6=1]",
        "sync b-6 <- assignment 1",
        "sync a-1 <- assignment 0",
    ]
    driver.heartbeat("a-1", 1)
    driver.heartbeat("b-6", 1)
    assert driver.said() == ["heartbeat a-1 <- NONE", "heartbeat b-6 <- NONE"]


def test_no_initial_delay_means_no_wait() -> None:
    driver = ShardDriver(CoordinatorConfig(group_initial_rebalance_delay_ms=0))
    driver.join("a", known=False)
    assert driver.said() == ["join a <- generation 1 as a-1, leader a-1, range, members a-1"]


def test_the_initial_delay_ends_with_the_rebalance_timeout(driver: ShardDriver) -> None:
    for client in "abcd":
        driver.join(client, known=False, rebalance=7000)
        driver.advance(2000)
    assert [line.partition(",")[0] for line in driver.said()] == [
        f"join {client} <- generation 1 as {client}-{turn}"
        for client, turn in (("a", 1), ("b", 4), ("c", 8), ("d", 11))
    ]


def test_a_new_member_makes_the_others_join_again(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("c", known=False)
    driver.heartbeat(a, 1)
    assert driver.said() == [f"heartbeat {a} <- REBALANCE_IN_PROGRESS"]
    driver.sync(b, 1)
    driver.commit(b, 1, offset=7)
    assert driver.said() == [
        f"sync {b} <- REBALANCE_IN_PROGRESS",
        "log offset g t-0 7",
        f"commit {b} <- NONE",
    ]
    driver.join("b", b)
    driver.join("a", a)
    trace = driver.said()
    assert [line.split(",")[0].split(" as ")[0] for line in trace] == [
        f"join {client} <- generation 2" for client in "abc"
    ]
    driver.commit(a, 2)
    driver.commit(a, 1)
    driver.heartbeat(a, 1)
    assert driver.said() == [
        f"commit {a} <- REBALANCE_IN_PROGRESS",
        f"commit {a} <- ILLEGAL_GENERATION",
        f"heartbeat {a} <- ILLEGAL_GENERATION",
    ]


def test_a_member_that_does_not_rejoin_in_time_is_out(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b", session=600_000)
    driver.join("b", b, protocols="range,roundrobin")
    driver.advance(59_999)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said() == [f"join b <- generation 2 as {b}, leader {b}, range, members {b}"]
    driver.heartbeat(a, 1)
    assert driver.said() == [f"heartbeat {a} <- UNKNOWN_MEMBER_ID"]


def test_a_silent_member_costs_its_session_and_the_group_a_rebalance(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.advance(9_000)
    driver.heartbeat(b, 1)
    driver.advance(1_000)
    driver.heartbeat(b, 1)
    assert driver.said() == [f"heartbeat {b} <- NONE", f"heartbeat {b} <- REBALANCE_IN_PROGRESS"]
    driver.join("b", b)
    driver.heartbeat(a, 1)
    assert driver.said() == [
        f"join b <- generation 2 as {b}, leader {b}, range, members {b}",
        f"heartbeat {a} <- UNKNOWN_MEMBER_ID",
    ]


def test_the_last_member_leaves_an_empty_generation_in_the_log(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.leave(a)
    assert driver.said() == ["log group g generation 2 []", f"leave {a} <- NONE"]
    driver.leave(a)
    assert driver.said() == [f"leave {a} <- UNKNOWN_MEMBER_ID"]


def test_leaving_while_others_wait_completes_their_join(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("b", b, protocols="range,roundrobin")
    driver.leave(a)
    assert driver.said() == [
        f"leave {a} <- NONE",
        f"join b <- generation 2 as {b}, leader {b}, range, members {b}",
    ]


def test_leaving_ends_ones_own_waiting_calls(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("b", b, protocols="range,roundrobin")
    driver.leave(b)
    assert driver.said() == ["join b <- UNKNOWN_MEMBER_ID", f"leave {b} <- NONE"]
    driver.join("a", a)
    driver.sync(a, 2, f"{a}=x")
    driver.join("c", known=False)
    driver.join("a", a)
    driver.said()
    driver.sync("c-16", 3)
    driver.leave("c-16")
    assert "sync c-16 <- UNKNOWN_MEMBER_ID" in driver.said()


def test_a_member_that_never_syncs_is_out_after_the_rebalance_timeout(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b", session=600_000)
    driver.join("a", a, session=600_000)
    driver.join("b", b, session=600_000)
    driver.sync(a, 2, f"{a}=0,{b}=1")
    driver.said()
    driver.advance(60_000)
    driver.heartbeat(a, 2)
    assert driver.said() == [f"heartbeat {a} <- REBALANCE_IN_PROGRESS"]
    driver.heartbeat(b, 2)
    assert driver.said() == [f"heartbeat {b} <- UNKNOWN_MEMBER_ID"]


def test_who_asks_again_to_join_is_there_for_another_session(driver: ShardDriver) -> None:
    """Its answer was lost with its connection."""
    a, b = driver.stable_group("a", "b", session=10_000)
    driver.join("a", a, session=10_000)
    driver.join("b", b, session=10_000)
    driver.advance(6_000)
    driver.join("b", b, session=10_000)
    driver.sync(a, 2, f"{a}=0,{b}=1")
    driver.advance(6_000)
    driver.said()
    driver.sync(b, 2)
    assert driver.said() == [f"sync {b} <- assignment 1"]


def test_who_asks_late_for_its_assignment_is_there_for_another_session(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b", session=10_000)
    driver.join("a", a, session=10_000)
    driver.join("b", b, session=10_000)
    driver.sync(a, 2, f"{a}=0,{b}=1")
    driver.said()
    for _ in range(2):
        driver.advance(4_500)
        driver.heartbeat(a, 2)
    driver.sync(b, 2)
    driver.advance(2_000)
    driver.heartbeat(b, 2)
    assert driver.said()[2:] == [f"sync {b} <- assignment 1", f"heartbeat {b} <- NONE"]


def test_followers_waiting_for_a_leader_that_dies_are_sent_back(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("a", a)
    driver.join("b", b)
    driver.said()
    driver.sync(b, 2)
    driver.advance(10_000)
    assert driver.said() == [f"sync {b} <- REBALANCE_IN_PROGRESS"]


def test_a_lost_join_answer_is_given_again(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("a", a)
    driver.join("b", b)
    driver.said()
    driver.join("a", a)
    driver.join("b", b)
    assert driver.said() == [
        f"join a <- generation 2 as {a}, leader {a}, range, members {a},{b}",
        f"join b <- generation 2 as {b}, leader {a}, range",
    ]
    driver.sync(a, 2, f"{a}=0,{b}=1")
    driver.said()
    driver.join("b", b)
    assert driver.said() == [f"join b <- generation 2 as {b}, leader {a}, range"]
    driver.join("a", a)
    driver.heartbeat(b, 2)
    assert driver.said() == [f"heartbeat {b} <- REBALANCE_IN_PROGRESS"]


def test_a_repeated_join_ends_the_earlier_call(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("b", b, protocols="range,roundrobin")
    driver.join("b", b, protocols="range,roundrobin")
    assert driver.said() == [f"join b <- REBALANCE_IN_PROGRESS {b}"]
    driver.join("a", a)
    assert len(driver.said()) == 2


def test_votes_choose_the_protocol(driver: ShardDriver) -> None:
    driver.join("a", known=False, protocols="x,y,z")
    driver.join("b", known=False, protocols="y,x")
    driver.join("c", known=False, protocols="z,y,x")
    driver.advance(6_000)
    assert all(", y" in line for line in driver.said())
    driver.join("d", known=False, protocols="z")
    driver.join("d", known=False, kind="connect")
    driver.join("d", known=False, protocols="")
    assert driver.said() == ["join d <- INCONSISTENT_GROUP_PROTOCOL"] * 3


def test_cooperative_members_rebalance_twice(driver: ShardDriver) -> None:
    """A cooperative assignor revokes in one generation and assigns in the next; each is an ordinary rebalance."""
    a, b = driver.stable_group("a", "b", protocols="cooperative-sticky")
    driver.join("a", a, protocols="cooperative-sticky", metadata=b"owned: 0,1")
    driver.join("b", b, protocols="cooperative-sticky", metadata=b"owned: none")
    driver.sync(a, 2, f"{a}=0,{b}=")
    driver.sync(b, 2)
    driver.heartbeat(b, 2)
    assert driver.said()[2:] == [
        f"log group g generation 2 [{a}=0,{b}=]",
        f"sync {a} <- assignment 0",
        f"sync {b} <- assignment ",
        f"heartbeat {b} <- NONE",
    ]
    driver.join("a", a, protocols="cooperative-sticky", metadata=b"owned: 0")
    driver.heartbeat(b, 2)
    driver.commit(b, 2, offset=3)
    driver.join("b", b, protocols="cooperative-sticky", metadata=b"owned: none")
    driver.sync(b, 3)
    driver.sync(a, 3, f"{a}=0,{b}=1")
    assert driver.said() == [
        f"heartbeat {b} <- REBALANCE_IN_PROGRESS",
        "log offset g t-0 3",
        f"commit {b} <- NONE",
        f"join a <- generation 3 as {a}, leader {a}, cooperative-sticky, members {a},{b}",
        f"join b <- generation 3 as {b}, leader {a}, cooperative-sticky",
        f"log group g generation 3 [{a}=0,{b}=1]",
        f"sync {b} <- assignment 1",
        f"sync {a} <- assignment 0",
    ]


def test_unknown_members_and_groups(driver: ShardDriver) -> None:
    driver.join("a", "a-9")
    driver.sync("a-9", 1)
    driver.heartbeat("a-9", 1)
    driver.leave("a-9")
    assert driver.said() == [
        "join a <- UNKNOWN_MEMBER_ID a-9",
        "sync a-9 <- UNKNOWN_MEMBER_ID",
        "heartbeat a-9 <- UNKNOWN_MEMBER_ID",
        "leave a-9 <- UNKNOWN_MEMBER_ID",
    ]
    assert not driver.shard.groups


def test_sync_holds_protocol_and_generation_against_the_group(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.sync(a, 0)
    driver.sync(a, 1, protocol_type="connect")
    driver.sync(a, 1, protocol_name="sticky")
    driver.sync(a, 1, protocol_type="consumer", protocol_name="range")
    assert driver.said() == [
        f"sync {a} <- ILLEGAL_GENERATION",
        f"sync {a} <- INCONSISTENT_GROUP_PROTOCOL",
        f"sync {a} <- INCONSISTENT_GROUP_PROTOCOL",
        f"sync {a} <- assignment p",
    ]


def test_a_pending_member_holds_the_rebalance_up_until_its_session_ends(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.join("b")
    driver.join("a", a)
    assert driver.said()[0].startswith("join b <- MEMBER_ID_REQUIRED")
    driver.advance(9_999)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said() == [f"join a <- generation 2 as {a}, leader {a}, range, members {a}"]


def test_a_full_group_takes_nobody_else() -> None:
    driver = ShardDriver(CoordinatorConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    driver.join("a", known=False)
    driver.sync("a-1", 1, "a-1=0")
    driver.join("b", known=False)
    driver.join("c", known=False)
    driver.join("a", "a-1")
    trace = driver.said()
    assert "join c <- GROUP_MAX_SIZE_REACHED" not in trace[:3]
    driver.join("d", known=False)
    assert driver.said() == ["join d <- GROUP_MAX_SIZE_REACHED"]


def test_a_group_too_large_for_a_record_is_sent_back(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.join("a", a)
    driver.join("b", b)
    driver.said()
    driver.sync(b, 2)
    driver.sync(a, 2, f"{a}={'x' * 2_000_000}")
    assert driver.said() == [f"sync {b} <- UNKNOWN_SERVER_ERROR", f"sync {a} <- UNKNOWN_SERVER_ERROR"]
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE


def test_long_names_count_in_a_group_s_record(driver: ShardDriver) -> None:
    name = "x" * 30_000
    (a,) = driver.stable_group("a", protocols=name, kind=name, metadata=b"m")
    driver.join("a", a, protocols=name, kind=name, metadata=b"m")
    driver.said()
    driver.sync(a, 2, f"{a}={'x' * 1_000_000}")
    assert driver.said() == [f"sync {a} <- UNKNOWN_SERVER_ERROR"]


def test_unlisted_events_raise() -> None:
    for state in GroupState:
        for event in GroupEvent:
            if event in TRANSITIONS[state]:
                assert next_state(state, event) is TRANSITIONS[state][event]
            else:
                with pytest.raises(UnexpectedEvent):
                    next_state(state, event)
