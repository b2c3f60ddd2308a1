"""Joining, rebalancing, leaving and dying in a consumer group (KIP-848), as exact traces."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_driver import ConsumerDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.fencing import fence_members
from barnabas.coordinator.groups.consumer.core.records import (
    CurrentRecord,
    MemberState,
    TargetEpoch,
    TargetEpochRecord,
)
from barnabas.coordinator.groups.core.deadlines import on_resumed, start_afresh
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.kernel.errors import ErrorCode


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(t=4)


def test_the_first_member_gets_everything_at_once(driver: ConsumerDriver) -> None:
    reply = driver.enter("a")
    assert driver.said() == [
        "log member a",
        "log epoch 2",
        "log target a [t0,1,2,3]",
        "log target 2",
        "log current a 2 stable [t0,1,2,3]",
        "a <- epoch 2 [t0,1,2,3]",
    ]
    assert reply.heartbeat_interval_ms == 5000
    assert driver.state() == "Stable"


def test_what_another_has_is_given_up_before_it_is_handed_over(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.said()
    driver.enter("b")
    assert driver.said() == [
        "log member b",
        "log epoch 3",
        "log target a [t0,1]",
        "log target b [t2,3]",
        "log target 3",
        "log current b 3 unreleased []",
        "b <- epoch 3 []",
    ]
    assert driver.state() == "Reconciling"
    driver.beat("a")
    assert driver.said() == ["log current a 2 unrevoked [t0,1] -[t2,3]", "a <- epoch 2 [t0,1]"]
    driver.beat("a")
    driver.beat("b")
    driver.beat("a", owned={"t": [0, 1, 3]})
    assert driver.said() == [
        "a <- epoch 2",
        "log current b 3 unreleased []",  # the epoch before this one is not good any more
        "b <- epoch 3",
        "a <- epoch 2",
    ]
    driver.beat("a", owned={"t": [0, 1]})
    driver.beat("b")
    assert driver.said() == [
        "log current a 3 stable [t0,1]",
        "a <- epoch 3",
        "log current b 3 stable [t2,3]",
        "b <- epoch 3 [t2,3]",
    ]
    assert driver.state() == "Stable"
    driver.beat("a")
    driver.beat("b")
    assert driver.said() == ["a <- epoch 3", "b <- epoch 3"]


def test_three_members_and_nobody_has_what_another_has(driver: ConsumerDriver) -> None:
    for member in "abc":
        driver.enter(member)
        for _ in range(4):
            for each in "abc"[: "abc".index(member) + 1]:
                driver.beat(each, owned=driver.has(each))
                driver.holders()
    assert sorted(map(len, (driver.has(member)["t"] for member in "abc"))) == [1, 1, 2]
    assert driver.state() == "Stable"
    assert len(driver.holders()) == 4


def test_a_new_target_while_partitions_are_given_up_waits_for_them(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.enter("b")
    driver.beat("a")
    driver.enter("c")
    driver.said()
    driver.beat("a", owned={"t": [0, 1, 2, 3]})
    assert driver.said() == ["a <- epoch 2"]
    driver.beat("a", owned={"t": [0, 1]})
    assert driver.said()[-1] == "a <- epoch 4"


def test_a_lost_answer_is_asked_for_again_with_the_epoch_before(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.enter("b")
    driver.beat("a")
    driver.beat("a", 2, owned={"t": [0, 1]})  # its answer, with epoch 2, is lost
    driver.said()
    driver.beat("a", 2, owned={"t": [0, 1]})
    driver.beat("a", 2, owned={"t": [0, 1, 2]})
    driver.beat("a", 2)
    driver.beat("a", 4)
    assert driver.said() == [
        "a <- epoch 3",
        "a <- FENCED_MEMBER_EPOCH",
        "a <- FENCED_MEMBER_EPOCH",
        "a <- FENCED_MEMBER_EPOCH",
    ]


def test_a_fenced_member_joins_again_while_it_is_still_known(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.said()
    driver.beat("a", 8)
    driver.enter("a")
    assert driver.said() == ["a <- FENCED_MEMBER_EPOCH", "a <- epoch 2 [t0,1,2,3]"]


def test_assignments_are_told_at_joins_in_full_requests_and_when_they_change(driver: ConsumerDriver) -> None:
    driver.enter("a")
    assert not driver.beat("a").HasField("assignment")
    assert not driver.beat("a", timeout=60_000, topics="t").HasField("assignment")
    assert not driver.beat("a", topics="t", owned={"t": [0]}).HasField("assignment")
    assert driver.beat("a", timeout=60_000, topics="t", owned={"t": [0]}).HasField("assignment")
    assert driver.enter("a").HasField("assignment")


def test_who_never_gives_up_is_out_at_the_rebalance_timeout(driver: ConsumerDriver) -> None:
    driver.enter("a", timeout=30_000)
    driver.enter("b")
    driver.beat("a")
    driver.said()
    for _ in range(6):
        driver.advance(4_999)
        driver.beat("a")
        driver.beat("b")
    assert driver.has("b") == {}
    driver.advance(6)
    assert driver.said()[-4:] == [
        "log current a gone",
        "log target a gone",
        "log member a gone",
        "log epoch 4",
    ]
    driver.beat("b")
    driver.beat("a", 2)
    assert driver.said()[-2:] == ["b <- epoch 4 [t0,1,2,3]", "a <- UNKNOWN_MEMBER_ID"]


def test_another_rebalance_timeout_counts_from_the_next_time_on(driver: ConsumerDriver) -> None:
    driver.enter("a", timeout=30_000)
    driver.enter("b")
    driver.beat("a")
    driver.beat("a", timeout=60_000)
    driver.advance(29_999)
    assert "a" in driver.shard.consumers.groups["g"].members
    driver.advance(1)
    assert "a" not in driver.shard.consumers.groups["g"].members


def test_a_silent_member_is_out_and_one_that_leaves_at_once(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.advance(10_000)
    driver.enter("b")
    driver.said()
    driver.advance(34_999)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said() == ["log current a gone", "log target a gone", "log member a gone", "log epoch 4"]
    driver.beat("a", 2)
    driver.beat("b", -1)
    driver.beat("b", 3)
    driver.beat("b", -1)
    assert driver.said() == [
        "a <- UNKNOWN_MEMBER_ID",
        "log current b gone",
        "log target b gone",
        "log member b gone",
        "log epoch 5",
        "b <- epoch -1",
        "b <- UNKNOWN_MEMBER_ID",
        "b <- UNKNOWN_MEMBER_ID",
    ]


def test_an_empty_group_keeps_an_epoch_above_its_target_and_can_be_joined(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.beat("a", -1)
    described = driver.description()
    assert (described.state, described.group_epoch, described.assignment_epoch) == ("Empty", 3, 2)
    driver.said()
    driver.enter("b")
    assert driver.said()[-1] == "b <- epoch 4 [t0,1,2,3]"


def test_members_that_come_together_share_a_target() -> None:
    driver = ConsumerDriver(interval=1000, t=12)
    driver.enter("m0")
    for number in range(1, 11):
        driver.advance(50)
        driver.enter(f"m{number}")
    assert sum(line.startswith("log target 2") for line in driver.said() if "[" not in line) == 1
    assert driver.state() == "Assigning"
    driver.advance(500)
    driver.beat("m3")
    assert "log target 12" in driver.said()
    driver.settle(*(f"m{number}" for number in range(11)))
    assert len(driver.holders()) == 12
    driver.set_times(assignment_interval_ms=0)
    driver.enter("late")
    assert "log target 13" in driver.said()


def test_a_coordinator_whose_clock_is_behind_does_not_wait_for_the_last_ones() -> None:
    driver = ConsumerDriver(interval=1_000, t=4)
    driver.enter("a")
    group = driver.shard.consumers.groups["g"]
    made = TargetEpoch(group.target_epoch.epoch, group.target_epoch.timestamp_ms + 3_600_000)
    driver.shard.replay(TargetEpochRecord("g", made))
    driver.advance(1_000)
    driver.enter("b")
    assert driver.description().assignment_epoch == 3


def test_without_an_interval_each_member_makes_a_target(driver: ConsumerDriver) -> None:
    for member in "abc":
        driver.enter(member)
    assert [line for line in driver.said() if line in ("log target 2", "log target 3", "log target 4")] == [
        "log target 2",
        "log target 3",
        "log target 4",
    ]


def test_a_full_group_refuses_newcomers_and_goes_on() -> None:
    driver = ConsumerDriver(CoordinatorConfig(group_consumer_max_size=1), t=1)
    driver.enter("a")
    driver.said()
    driver.enter("b")
    driver.beat("a")
    driver.enter("a")
    assert driver.said() == ["b <- GROUP_MAX_SIZE_REACHED", "a <- epoch 2", "a <- epoch 2 [t0]"]


def test_a_member_without_an_id_gets_one(driver: ConsumerDriver) -> None:
    reply = driver.enter("")
    assert reply.member_id
    assert not reply.error_code


def test_a_group_that_is_not_there_can_only_be_joined(driver: ConsumerDriver) -> None:
    for epoch in (1, -1, -2):
        assert driver.beat("a", epoch, instance="i").error_code == ErrorCode.group_id_not_found
    driver.enter("a")
    assert driver.beat("b", 2).error_code == ErrorCode.unknown_member_id


def test_a_new_coordinator_knows_everything_and_starts_the_timers_anew(driver: ConsumerDriver) -> None:
    driver.enter("a", timeout=20_000)
    driver.enter("b", timeout=20_000)
    driver.beat("a")
    before = driver.description()
    driver.advance(15_000)
    driver.reload()
    assert driver.description() == before
    driver.said()
    driver.advance(19_999)
    assert driver.said() == []
    driver.advance(1)
    assert "log member a gone" in driver.said()
    driver.advance(25_000)
    assert "log member b gone" in driver.said()


@pytest.mark.parametrize("steps", range(8))
def test_a_coordinator_that_dies_at_any_step_loses_nothing(steps: int) -> None:
    driver = ConsumerDriver(t=4)
    script = [
        lambda: driver.enter("a"),
        lambda: driver.enter("b"),
        lambda: driver.beat("a"),
        lambda: driver.beat("a", owned=driver.has("a")),
        lambda: driver.beat("b", owned=driver.has("b")),
        lambda: driver.enter("c"),
        lambda: driver.beat("b"),
    ]
    for step in script[:steps]:
        step()
    before = driver.description()
    driver.reload()
    if steps:
        assert driver.description() == before
        members = [member.member_id for member in before.members]
        driver.settle(*members)
        assert len(driver.holders()) == 4


def test_a_member_in_a_state_of_a_newer_coordinator_starts_anew(driver: ConsumerDriver) -> None:
    driver.enter("a")
    current = driver.shard.consumers.groups["g"].members["a"].current
    driver.shard.replay(CurrentRecord("g", "a", replace(current, state=MemberState.UNKNOWN)))
    driver.said()
    driver.beat("a")
    driver.beat("a", owned={"t": [0]})
    driver.enter("a")
    assert driver.said() == [
        "a <- FENCED_MEMBER_EPOCH",
        "a <- FENCED_MEMBER_EPOCH",
        "log current a 2 stable [t0,1,2,3]",
        "a <- epoch 2 [t0,1,2,3]",
    ]


def test_who_is_fenced_has_not_had_the_topics_looked_at(driver: ConsumerDriver) -> None:
    driver.enter("a")
    current = driver.shard.consumers.groups["g"].members["a"].current
    driver.shard.replay(CurrentRecord("g", "a", replace(current, state=MemberState.UNKNOWN)))
    driver.create_topic("t", 5)
    driver.said()
    driver.beat("a")
    driver.enter("a")
    assert driver.said() == [
        "a <- FENCED_MEMBER_EPOCH",
        "log epoch 3",
        "log target a [t0,1,2,3,4]",
        "log target 3",
        "log current a 3 stable [t0,1,2,3,4]",
        "a <- epoch 3 [t0,1,2,3,4]",
    ]


def test_a_log_without_the_record_that_gave_a_partition_up_says_who_has_it_now(
    driver: ConsumerDriver,
) -> None:
    driver.enter("a")
    driver.enter("b")
    driver.settle("a", "b")
    driver.beat("b", -1)
    driver.beat("a")
    group = driver.shard.consumers.groups["g"]
    topic_id = driver.ids["t"]
    assert all(group.holder_of(topic_id, partition) == "a" for partition in range(4))
    # As compaction may leave it: b's first record, a's that took everything, and b's end behind that.
    mine = group.members["a"].current
    theirs = replace(mine, assigned={topic_id: {2: 3, 3: 3}})
    for record in (
        CurrentRecord("g", "b", theirs),
        CurrentRecord("g", "a", mine),
        CurrentRecord("g", "b", None),
    ):
        driver.shard.replay(record)
    assert all(group.holder_of(topic_id, partition) == "a" for partition in range(4))


def test_what_cannot_be_written_is_taken_back_and_sessions_go_on(driver: ConsumerDriver) -> None:
    driver.enter("a")
    group = driver.shard.consumers.groups["g"]
    before = driver.description()

    def lost(decision: Decision) -> None:
        fence_members(driver.shard, group, [group.members["a"]], decision)
        records = list(decision.records)
        decision.records.clear()
        assert start_afresh(driver.shard, records, decision) == []

    driver.take(lost)
    assert driver.description() == before
    assert group.needs_refresh
    driver.advance(44_999)
    assert "a" in group.members
    driver.advance(1)
    assert "a" not in group.members


def test_time_begins_anew_where_the_log_took_no_writes(driver: ConsumerDriver) -> None:
    driver.enter("a", timeout=5_000)
    driver.enter("b", None, regex="t", timeout=5_000)
    driver.advance(1)
    driver.beat("a")
    driver.clock.advance(60_000)  # nothing is decided meanwhile
    driver.take(lambda decision: on_resumed(driver.shard, decision))
    driver.said()
    driver.advance(4_999)
    assert driver.said() == []
    driver.beat("a")
    driver.beat("b")
    driver.advance(44_000)
    members = driver.shard.consumers.groups["g"].members
    assert list(members) == ["b"]  # a did not give up what it should
    driver.advance(1_001)
    assert not members


def test_who_was_sent_away_while_the_log_took_no_writes_can_come_again(driver: ConsumerDriver) -> None:
    driver.enter("a")
    driver.enter("b", None, regex="t", timeout=46_000)
    driver.advance(1)
    driver.beat("a")
    driver.beat("b")
    driver.clock.advance(44_999)  # nothing is decided meanwhile, and nothing due
    driver.take(lambda decision: on_resumed(driver.shard, decision))
    driver.said()
    driver.advance(9_999)
    assert driver.said() == []
    driver.beat("b")
    driver.advance(1)
    assert list(driver.shard.consumers.groups["g"].members) == ["b"]
