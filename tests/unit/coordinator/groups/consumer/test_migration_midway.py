"""Groups that change their protocol in the midst of a rebalance: it goes on, and nobody has what another one reads."""

from __future__ import annotations

import pytest
from migration_driver import MigrationDriver, assignment, subscription

from barnabas.coordinator.groups.core.states import GroupState
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture
def driver() -> MigrationDriver:
    return MigrationDriver(t=4)


@pytest.mark.parametrize("has_generation", [False, True], ids=["first", "later"])
def test_a_rebalance_goes_on_whoever_takes_the_group_with_it(
    driver: MigrationDriver, has_generation: bool
) -> None:
    """A static member in its own place changes nothing, and partitions that nobody has would stay so."""
    if has_generation:
        driver.join("a", instance="i", known=False, metadata=subscription("t"))
        waiter = driver.join("b", known=False, metadata=subscription("t"))
        driver.advance(driver.config.group_initial_rebalance_delay_ms * 2)
        reply = driver.replies[waiter]
        assert isinstance(reply, pb.JoinGroupResponse)
        driver.leave(reply.member_id)
    else:
        driver.join("a", instance="i", known=False, metadata=subscription("t"))
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE
    driver.enter("new", instance="i")
    driver.settle("new")
    assert driver.has("new") == {"t": [0, 1, 2, 3]}


@pytest.mark.parametrize("is_loaded", [False, True], ids=["here", "loaded"])
@pytest.mark.parametrize("instance", [None, "i"], ids=["leaves", "comes back"])
def test_down_and_up_again_before_anyone_joined_gives_nobody_what_another_one_reads(
    driver: MigrationDriver, instance: str | None, is_loaded: bool
) -> None:
    """As where the only member of the newer protocol is restarted while the others are still to be moved."""
    (a,) = driver.classic_group(a=assignment({"t": [0, 1, 2, 3]}))
    driver.enter("new", instance=instance)
    if instance is None:
        driver.beat("new", -1)
    else:
        driver.join("c", instance=instance, metadata=subscription("t"))
    assert driver.shard.groups["g"].state is GroupState.PREPARING_REBALANCE
    if is_loaded:
        driver.reload()
    driver.enter("next")
    assert {member for (_, _), member in driver.holders().items()} == {a}
    assert len(driver.holders()) == 4
    driver.rejoin(a, {"t": [0, 1, 2, 3]})
    driver.rejoin(a, {})
    driver.beat("next")
    assert driver.has("next")


def test_who_was_sent_back_before_it_had_its_assignment_still_reads_what_it_had(
    driver: MigrationDriver,
) -> None:
    """A cooperative member gives up nothing before it is told to."""
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.join("c", known=False, metadata=subscription("t"))
    driver.join(a, a, metadata=subscription("t", owned={"t": [0, 1]}))
    driver.join(b, b, metadata=subscription("t", owned={"t": [1, 2, 3]}))
    group = driver.shard.groups["g"]
    assert group.state is GroupState.COMPLETING_REBALANCE
    (c,) = group.members.keys() - {a, b}
    driver.leave(c)
    assert group.state is GroupState.PREPARING_REBALANCE
    driver.enter("new")
    assert driver.holders() == {("t", 0): a, ("t", 1): a, ("t", 2): b, ("t", 3): b}


def test_what_two_say_that_they_have_is_of_who_has_it_of_the_later_generation(
    driver: MigrationDriver,
) -> None:
    """The other one slept through generations, as a static member may."""
    a, b = driver.classic_group(a=assignment({"t": [0, 1]}), b=assignment({"t": [2, 3]}))
    driver.join("c", known=False, metadata=subscription("t"))
    driver.join(a, a, metadata=subscription("t", owned={"t": [0, 1, 2]}, generation=0))
    driver.join(b, b, metadata=subscription("t", owned={"t": [2, 3]}, generation=1))
    group = driver.shard.groups["g"]
    (c,) = group.members.keys() - {a, b}
    driver.leave(c)
    driver.enter("new")
    assert driver.holders() == {("t", 0): a, ("t", 1): a, ("t", 2): b, ("t", 3): b}


def test_who_is_told_to_give_something_up_has_it_until_it_joins_again(driver: MigrationDriver) -> None:
    """The group is stable from the moment in which it is said what each is to have."""
    a, b = driver.classic_group(a=assignment({"t": [0]}), b=assignment({"t": [1, 2, 3]}))
    driver.join(b, b, metadata=subscription("t", owned={"t": [1, 2, 3]}, generation=1))
    driver.join(a, a, metadata=subscription("t", owned={"t": [0]}, generation=1))
    group = driver.shard.groups["g"]
    rows = [
        pb.SyncGroupAssignment(member_id=a, assignment=assignment({"t": [0]})),
        pb.SyncGroupAssignment(member_id=b, assignment=assignment({"t": [1]})),
    ]
    assert group.leader == a
    driver.call_sync(pb.SyncGroupRequest(group_id="g", generation_id=2, member_id=a, assignments=rows))
    assert group.state is GroupState.STABLE
    driver.enter("new")
    assert driver.holders() == {("t", 0): a, ("t", 1): b, ("t", 2): b, ("t", 3): b}


def test_what_was_added_to_a_topic_and_not_shared_out_yet_is_shared_out(driver: MigrationDriver) -> None:
    """Who leads a classic group looks at the metadata once in minutes, and shares nothing out any more."""
    driver.join("a", instance="i", known=False, metadata=subscription("t"))
    driver.advance(driver.config.group_initial_rebalance_delay_ms * 2)
    group = driver.shard.groups["g"]
    (a,) = group.members
    driver.sync(a, 1, f"{a}=x")
    group.members[a].assignment = assignment({"t": [0, 1, 2, 3]})
    assert group.state is GroupState.STABLE
    driver.create_topic("t", 6, driver.ids["t"])
    driver.enter("new", instance="i")
    driver.settle("new")
    assert driver.has("new") == {"t": [0, 1, 2, 3, 4, 5]}
