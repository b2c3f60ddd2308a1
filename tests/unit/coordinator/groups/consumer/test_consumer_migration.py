"""Groups that change their protocol while members are in them, and members of both protocols in one group (KIP-848)."""

from __future__ import annotations

import pytest
from migration_driver import MigrationDriver, assignment, subscription

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.embedded import (
    Malformed,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture
def driver() -> MigrationDriver:
    return MigrationDriver(t=4)


def test_a_member_of_the_newer_protocol_takes_the_group_with_it(driver: MigrationDriver) -> None:
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.enter("new")
    said = driver.said()
    assert said == [
        "log group g gone",
        f"log member {a} classic",
        f"log member {b} classic",
        "log epoch 1",
        f"log target {a} [t0,1]",
        f"log target {b} [t2,3]",
        "log target 1",
        f"log current {a} 1 stable [t0,1]",
        f"log current {b} 1 stable [t2,3]",
        "log member new",
        "log epoch 2",
        f"log target {b} [t2]",
        "log target new [t3]",
        "log target 2",
        "log current new 2 unreleased []",
        "new <- epoch 2 []",
    ]
    assert driver.state() == "Reconciling"
    assert "g" not in driver.shard.groups
    assert [member.is_classic for member in driver.description().members] == [True, True, False]


def test_members_of_both_protocols_hand_partitions_over(driver: MigrationDriver) -> None:
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.enter("new")
    assert [driver.beaten(a, 1), driver.beaten(b, 1), driver.beaten(b, 7)] == [
        "rebalance_in_progress",
        "rebalance_in_progress",
        "illegal_generation",
    ]
    assert driver.rejoin(a, {"t": [0, 1]}) == 2
    assert driver.synced(a, 2) == "t0,1"
    # The cooperative way: first it is told what to give up, by an assignment without it.
    assert driver.rejoin(b, {"t": [2, 3]}) == 1
    assert driver.synced(b, 1) == "t2"
    assert driver.beaten(b, 1) == "rebalance_in_progress"
    assert driver.beat("new").HasField("assignment") is False
    assert driver.rejoin(b, {"t": [2]}) == 2
    assert driver.synced(b, 2) == "t2"
    assert driver.beaten(b, 2) == "none"
    driver.beat("new")
    assert driver.has("new") == {"t": [3]}
    assert driver.state() == "Stable"
    assert len(driver.holders()) == 4
    driver.reload()
    assert driver.state() == "Stable"
    assert driver.beaten(a, 2) == "none"


def test_an_eager_member_gives_up_everything_when_it_joins(driver: MigrationDriver) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new")
    waiter = driver.join("a", a, metadata=subscription("t", version=0))
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    assert (reply.generation_id, reply.leader, reply.protocol_name) == (2, "", "range")
    assert driver.synced(a, 2) == "t0,1"
    driver.beat("new")
    assert driver.has("new") == {"t": [2, 3]}


def test_a_classic_member_that_waits_is_told_when_it_can_go_on(driver: MigrationDriver) -> None:
    driver.enter("new")
    waiter = driver.join("c", known=True, metadata=subscription("t"))
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    assert reply.error_code == ErrorCode.member_id_required
    c = reply.member_id
    assert driver.rejoin(c) == 3
    assert driver.synced(c, 3) == ""
    assert driver.beaten(c, 3) == "none"
    driver.beat("new")
    driver.beat("new", owned=driver.has("new"))
    assert driver.beaten(c, 3) == "rebalance_in_progress"
    assert driver.rejoin(c) == 3
    assert driver.synced(c, 3) == "t2,3"
    assert driver.beaten(c, 3) == "none"


@pytest.mark.parametrize("state", ["preparing", "completing"])
def test_who_waits_in_a_classic_group_is_to_join_again(driver: MigrationDriver, state: str) -> None:
    driver.join("a", known=False, metadata=subscription("t"))
    if state == "completing":
        driver.join("b", known=False, metadata=subscription("t"))
        driver.advance(driver.config.group_initial_rebalance_delay_ms * 2)
        group = driver.shard.groups["g"]
        (follower,) = group.members.keys() - {group.leader}
        driver.sync(follower, 1)
    driver.said()
    driver.enter("new")
    said = driver.said()
    who = "join a" if state == "preparing" else f"sync {follower}"
    assert any(line.startswith(f"{who} <- REBALANCE_IN_PROGRESS") for line in said)
    assert driver.unanswered() == set()
    assert len(driver.description().members) == (2 if state == "preparing" else 3)
    assert driver.description().group_epoch == driver.description().assignment_epoch == 3


def test_nobody_is_told_epoch_0_where_the_group_had_no_generation_yet(driver: MigrationDriver) -> None:
    driver.join("a", instance="i", known=False, metadata=subscription("t"))
    assert driver.enter("b", "", instance="i").member_epoch > 0
    driver.settle("b")


def test_a_protocol_that_nobody_had_to_read_is_read_when_its_member_asks(driver: MigrationDriver) -> None:
    driver.join("a", known=False, protocols="other,range", metadata=[b"?", subscription("t")])
    driver.join("b", known=False, metadata=subscription("t"))
    driver.advance(driver.config.group_initial_rebalance_delay_ms * 2)
    a = driver.shard.groups["g"].leader or ""
    driver.sync(a, 1)
    driver.shard.groups["g"].members[a].assignment = assignment({"t": [0, 1, 2, 3]})
    driver.enter("new", "")  # nothing is to move for it
    assert driver.synced(a, 1) == "INCONSISTENT_GROUP_PROTOCOL"
    assert driver.rejoin(a) == 1
    assert driver.synced(a, 1) == "t0,1,2,3"


@pytest.mark.parametrize(
    ("policy", "size", "metadata", "data", "kind"),
    [
        ("downgrade", 9, None, b"", "consumer"),
        ("Disabled", 9, None, b"", "consumer"),
        ("upgrade", 1, None, b"", "consumer"),
        ("upgrade", 9, b"\0", b"", "consumer"),
        ("upgrade", 9, None, b"u", "consumer"),
        ("upgrade", 9, None, b"", "connect"),
    ],
)
def test_what_cannot_become_a_consumer_group_stays_as_it_is(
    policy: str, size: int, metadata: bytes | None, data: bytes, kind: str
) -> None:
    config = CoordinatorConfig(group_consumer_migration_policy=policy, group_consumer_max_size=size)
    driver = MigrationDriver(config, t=4)
    for client in "ab":
        driver.join(client, known=False, kind=kind, metadata=metadata or subscription("t"))
    driver.advance(config.group_initial_rebalance_delay_ms * 2)
    group = driver.shard.groups["g"]
    leader = group.leader or ""
    row = pb.SyncGroupAssignment(member_id=leader, assignment=assignment({"t": [0]}, data))
    driver.call_sync(pb.SyncGroupRequest(group_id="g", generation_id=1, member_id=leader, assignments=[row]))
    driver.said()
    reply = driver.enter("new")
    assert reply.error_code == ErrorCode.group_id_not_found
    assert driver.said() == ["new <- GROUP_ID_NOT_FOUND"]
    assert driver.shard.groups["g"].state is GroupState.STABLE
    assert driver.beaten(leader, 1) == "none"


def test_a_refused_first_member_leaves_the_classic_group_alone(driver: MigrationDriver) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0]}))
    assert driver.enter("new", None, regex="(").error_code == ErrorCode.invalid_regular_expression
    assert driver.said() == ["new <- INVALID_REGULAR_EXPRESSION"]
    assert driver.beaten(a, 1) == "none"


@pytest.mark.parametrize("way", ["leave", "session", "rebalance", "LeaveGroup"])
def test_the_last_one_of_the_newer_protocol_leaves_a_classic_group(driver: MigrationDriver, way: str) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new", timeout=5_000)
    driver.rejoin(a, {"t": [0, 1, 2, 3]}, session=60_000)
    driver.synced(a, 1)
    assert driver.rejoin(a, {"t": [0, 1]}, session=60_000) == 2
    driver.synced(a, 2)
    driver.beat("new")
    if way == "rebalance":
        driver.enter("other")
        driver.beat("new")
        driver.beat("other", -1)
        driver.advance(5_000)
    elif way == "session":
        driver.advance(45_000)
    elif way == "leave":
        driver.beat("new", -1)
    else:
        driver.leave("new")
    said = driver.said()
    generation = 4 if way == "rebalance" else 2
    assert any(line.startswith(f"log group g generation {generation} ") for line in said)
    group = driver.shard.groups["g"]
    assert list(group.members) == [a]
    assert group.state is GroupState.PREPARING_REBALANCE
    assert "g" not in driver.shard.consumers
    assert read_assignment(group.members[a].assignment)[0]["t"] >= {0, 1}
    assert driver.beaten(a, generation) == "rebalance_in_progress"
    driver.reload()
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE, "the partitions are nobody's yet"
    assert driver.beaten(a, generation) == "rebalance_in_progress"
    driver.join(a, a, metadata=subscription("t"))
    driver.sync(a, generation + 1, f"{a}=all")
    driver.reload()
    assert driver.shard.groups["g"].state is GroupState.STABLE


def test_who_comes_back_as_the_last_is_not_told_of_what_others_have_still_to_give_up(
    driver: MigrationDriver,
) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new", instance="i")
    waiter = driver.join("c", instance="i", metadata=subscription("t"))
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    group = driver.shard.groups["g"]
    assert set(group.members) == {a, reply.member_id}
    assert group.state is GroupState.PREPARING_REBALANCE
    assert driver.synced(reply.member_id, group.generation) == "REBALANCE_IN_PROGRESS"
    assert driver.beaten(a, group.generation) == "rebalance_in_progress"


def test_who_comes_back_as_the_last_gets_what_others_have_given_up(driver: MigrationDriver) -> None:
    """Also where it had not heard of that: nothing has to be shared out anew."""
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new", instance="i")
    driver.rejoin(a, {"t": [0, 1, 2, 3]})
    driver.synced(a, 1)
    assert driver.rejoin(a, {"t": [0, 1]}) == 2
    driver.synced(a, 2)
    assert driver.has("new") == {}
    waiter = driver.join("c", instance="i", metadata=subscription("t"))
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    assert driver.shard.groups["g"].state is GroupState.STABLE
    assert driver.synced(reply.member_id, reply.generation_id) == "t2,3"
    assert driver.beaten(a, reply.generation_id) == "none"


def test_who_comes_back_as_the_last_with_another_subscription_has_the_group_rebalanced(
    driver: MigrationDriver,
) -> None:
    """There is no target for that yet."""
    driver.enter("new", instance="i")
    driver.join("c", instance="i", metadata=subscription("t", "u"))
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE
    driver.reload()
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE


def test_with_no_downgrade_it_stays_a_consumer_group_of_classic_members() -> None:
    driver = MigrationDriver(CoordinatorConfig(group_consumer_migration_policy="upgrade"), t=4)
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new")
    driver.beat("new", -1)
    assert driver.description().members[0].is_classic
    assert driver.rejoin(a, {"t": [0, 1, 2, 3]}) == 3
    assert driver.synced(a, 3) == "t0,1,2,3"
    driver.leave(a)
    assert driver.state() == "Empty"


def test_a_classic_member_does_not_count_against_group_max_size_it_forbids_the_downgrade() -> None:
    driver = MigrationDriver(CoordinatorConfig(group_max_size=1), t=4)
    driver.enter("new")
    for client in "ab":
        driver.join(client, known=False, metadata=subscription("t"))
    driver.beat("new", -1)
    assert driver.state() != "Empty"
    assert len(driver.description().members) == 2


def test_where_migration_is_disabled_classic_members_cannot_join_again() -> None:
    config = CoordinatorConfig()
    driver = MigrationDriver(config, t=4)
    (a,) = driver.classic_group(a=assignment({"t": [0]}))
    driver.enter("new")
    driver.config = driver.shard.config = CoordinatorConfig(group_consumer_migration_policy="disabled")
    assert driver.rejoin(a) == -ErrorCode.inconsistent_group_protocol
    assert driver.beaten(a, 1) == "rebalance_in_progress"


def test_empty_groups_change_under_any_policy() -> None:
    driver = MigrationDriver(CoordinatorConfig(group_consumer_migration_policy="disabled"), t=4)
    driver.commit("", -1, offset=5)
    driver.enter("new")
    assert driver.said()[-1] == "new <- epoch 2 [t0,1,2,3]"
    assert driver.fetch() == 5
    driver.beat("new", -1)
    driver.said()
    driver.join("c", known=False, metadata=subscription("t"))
    said = driver.said()
    assert said == ["log target gone", "log topics gone", "log epoch gone"]
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE
    assert "g" not in driver.shard.consumers
    assert driver.fetch() == 5
    driver.leave("c-8")
    driver.advance(60_000)
    driver.said()
    assert driver.shard.groups["g"].state is GroupState.EMPTY
    driver.enter("again")
    assert driver.said()[-1] == "again <- epoch 2 [t0,1,2,3]"
    assert driver.fetch() == 5


def test_classic_members_are_out_when_they_miss_their_time(driver: MigrationDriver) -> None:
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.enter("new")
    members = driver.shard.consumers.groups["g"].members
    for _ in range(13):
        assert driver.beaten(a, 1) in ("rebalance_in_progress", "unknown_member_id")
        driver.beat("new")
        driver.advance(5_000)
    assert a not in members  # told to join, and did not within its rebalance timeout
    assert b not in members  # silent for its own session timeout
    assert driver.has("new") == {"t": [0, 1, 2, 3]}


def test_who_joins_and_does_not_ask_for_its_assignment_is_out(driver: MigrationDriver) -> None:
    driver.enter("new")
    waiter = driver.join("c", known=False, metadata=subscription("t"), session=600_000)
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    driver.advance(20_000)
    driver.beat("new")
    driver.advance(39_999)
    assert reply.member_id in driver.shard.consumers.groups["g"].members
    driver.advance(1)
    assert reply.member_id not in driver.shard.consumers.groups["g"].members


def test_who_speaks_the_newer_protocol_now_owes_no_step_of_the_other(driver: MigrationDriver) -> None:
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.enter("new")
    assert driver.beaten(a, 1) == "rebalance_in_progress"  # has to join in time
    driver.rejoin(b, {"t": [2, 3]})  # has to ask for its assignment in time
    for member in (a, b):
        driver.enter(member)
    driver.settle(a, b, "new")
    for _ in range(2):
        driver.advance(40_000)
        for member in (a, b, "new"):
            driver.beat(member)
    assert set(driver.shard.consumers.groups["g"].members) == {a, b, "new"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_name": "other"}, ErrorCode.inconsistent_group_protocol),
        ({"generation_id": 9}, ErrorCode.illegal_generation),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": "new"}, ErrorCode.unknown_member_id),
        ({"group_instance_id": "i"}, ErrorCode.unknown_member_id),
        ({}, ErrorCode.rebalance_in_progress),
    ],
)
def test_what_sync_refuses(driver: MigrationDriver, change: dict[str, object], code: ErrorCode) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0]}))
    driver.enter("new")
    request = {"group_id": "g", "member_id": a, "generation_id": 1, "protocol_name": "range"} | change
    assert driver.call_sync(pb.SyncGroupRequest(**request)).error_code == code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"kind": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_what_a_classic_newcomer_must_bring(
    driver: MigrationDriver, more: dict[str, str], code: ErrorCode
) -> None:
    driver.classic_group(a=assignment({"t": [0]}))
    driver.enter("new")
    waiter = driver.join("c", known=False, metadata=subscription("t"), **more)
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    assert reply.error_code == code


def test_a_static_member_changes_its_protocol_both_ways(driver: MigrationDriver) -> None:
    driver.enter("new", instance="i")
    driver.said()
    waiter = driver.join("c", instance="i", metadata=subscription("t", owned={"t": [0, 1, 2, 3]}))
    reply = driver.replies[waiter]
    assert isinstance(reply, pb.JoinGroupResponse)
    # It was the only one: a classic group, and as nothing changed for it, without a rebalance.
    assert (reply.error_code, reply.generation_id) == (0, 2)
    group = driver.shard.groups["g"]
    assert (group.state, group.generation, list(group.members)) == (GroupState.STABLE, 2, [reply.member_id])
    assert driver.said()[-2].startswith("log group g generation 2")
    assert read_assignment(group.members[reply.member_id].assignment)[0] == {"t": frozenset(range(4))}
    driver.reload()
    assert driver.shard.groups["g"].state is GroupState.STABLE
    driver.enter("new2", instance="i")
    member = driver.description().members[0]
    assert (member.member_id, member.is_classic, member.member_epoch) == ("new2", False, 2)
    assert driver.has("new2") == {"t": [0, 1, 2, 3]}


def test_an_administrator_removes_an_instance(driver: MigrationDriver) -> None:
    driver.enter("new", instance="i")
    driver.enter("other")
    driver.leave("", instance="i")
    driver.leave("", instance="j")
    driver.leave("x", instance="i")
    driver.leave("nobody")
    assert [line for line in driver.said() if line.startswith("leave")] == [
        "leave  <- NONE",
        "leave  <- UNKNOWN_MEMBER_ID",
        "leave x <- UNKNOWN_MEMBER_ID",
        "leave nobody <- UNKNOWN_MEMBER_ID",
    ]


def test_members_whose_sessions_end_together_go_together(driver: MigrationDriver) -> None:
    driver.enter("a", None, regex="t")
    driver.enter("b", None, regex="t")
    driver.beat("a")
    driver.said()
    driver.advance(45_000)
    said = driver.said()
    assert "log regex t gone" in said
    assert driver.state() == "Empty"
    assert sum(line.startswith("log epoch") for line in said) == 1


def test_commits_of_classic_members_go_by_generations(driver: MigrationDriver) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0]}))
    driver.enter("new")
    driver.said()
    driver.commit(a, 1)
    driver.commit(a, 2)
    driver.commit("new", 2)
    assert [line for line in driver.said() if line.startswith("commit")] == [
        f"commit {a} <- NONE",
        f"commit {a} <- ILLEGAL_GENERATION",
        "commit new <- UNSUPPORTED_VERSION",
    ]


def test_what_members_say_inside_is_read_in_every_version() -> None:
    for version in range(5):
        read = read_subscription(subscription("a", "b", owned={"a": [1, 2]}, version=version))
        assert read.topics == ("a", "b")
        assert read.owned == ({"a": frozenset((1, 2))} if version else {})
        assert read.rack_id == ("r" if version >= 3 else None)
        assert version_of(subscription(version=version)) == min(version, 3)
    assert read_assignment(write_assignment({"t": [2, 1]}, 2)) == ({"t": frozenset((1, 2))}, b"")
    assert write_assignment({"t": [2, 1]}, 1) == assignment({"t": [1, 2]})
    for data in (b"", b"\0", subscription("a")[:-1], b"\xff\xff" + subscription("a")[2:]):
        with pytest.raises(Malformed):
            read_subscription(data)
    with pytest.raises(Malformed):
        read_assignment(assignment({"a": [1]})[:-1])


def test_the_log_of_a_group_that_went_up_and_down_ends_as_it_is(driver: MigrationDriver) -> None:
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new")
    driver.beat("new", -1)
    kept = {}
    for record in driver.log:  # as compaction leaves it
        key = (type(record), record.group_id, getattr(record, "member_id", ""))
        kept.pop(key, None)
        kept[key] = record
    driver.log = list(kept.values())
    driver.reload()
    assert [type(record) for record in driver.log if record.value is not None] == [GroupRecord]
    assert list(driver.shard.groups["g"].members) == [a]
    assert "g" not in driver.shard.consumers
