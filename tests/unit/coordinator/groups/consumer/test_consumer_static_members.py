"""Static members of consumer groups: away for a while, back, or somebody else in their place."""

from __future__ import annotations

import pytest
from consumer_driver import ConsumerDriver


@pytest.fixture
def driver() -> ConsumerDriver:
    driver = ConsumerDriver(t=4)
    driver.enter("a", instance="i")
    driver.enter("b")
    driver.settle("a", "b")
    driver.said()
    return driver


def away(driver: ConsumerDriver) -> None:
    driver.beat("a", -2, instance="i")
    assert driver.said() == ["log current a -2 stable [t0,1]", "a <- epoch -2"]


@pytest.mark.parametrize("member", ["a", "a2"])
def test_who_comes_back_in_time_has_what_it_had(driver: ConsumerDriver, member: str) -> None:
    away(driver)
    driver.advance(44_000)
    driver.beat("b")
    assert driver.said() == ["b <- epoch 3"]
    driver.enter(member, instance="i")
    assert driver.said() == [
        "log current a gone",
        "log target a gone",
        "log member a gone",
        f"log member {member}",
        f"log target {member} [t0,1]",
        f"log current {member} 0 stable [t0,1]",
        f"log current {member} 3 stable [t0,1]",
        f"{member} <- epoch 3 [t0,1]",
    ]
    assert driver.state() == "Stable"
    driver.advance(44_000)
    driver.beat("b")
    driver.beat(member, instance="i")
    assert driver.said() == ["b <- epoch 3", f"{member} <- epoch 3"]


def test_who_comes_back_with_another_subscription_gets_another_target(driver: ConsumerDriver) -> None:
    driver.create_topic("u", 2)
    away(driver)
    driver.enter("a2", topics="u", instance="i")
    said = driver.said()
    assert "log epoch 4" in said
    assert "log target a2 [u0,1]" in said
    assert said[-1] == "a2 <- epoch 4 [u0,1]"
    driver.settle("a2", "b")
    assert driver.has("b") == {"t": [0, 1, 2, 3]}


def test_who_does_not_come_back_is_out_at_the_end_of_its_session(driver: ConsumerDriver) -> None:
    driver.advance(30_000)
    driver.beat("b")
    driver.said()
    away(driver)
    driver.advance(14_999)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said() == ["log current a gone", "log target a gone", "log member a gone", "log epoch 4"]


def test_an_instance_that_has_not_gone_is_not_replaced(driver: ConsumerDriver) -> None:
    driver.enter("a", instance="i")
    driver.enter("a2", instance="i")
    assert driver.said() == ["a <- UNRELEASED_INSTANCE_ID", "a2 <- UNRELEASED_INSTANCE_ID"]


def test_the_old_id_is_fenced_and_unknown_instances_are_unknown(driver: ConsumerDriver) -> None:
    away(driver)
    driver.enter("a2", instance="i")
    driver.said()
    for epoch in (3, -1, -2):
        driver.beat("a", epoch, instance="i")
        driver.beat("a2", epoch, instance="j")
    assert driver.said() == ["a <- FENCED_INSTANCE_ID", "a2 <- UNKNOWN_MEMBER_ID"] * 3


def test_a_static_member_can_leave_for_good(driver: ConsumerDriver) -> None:
    driver.beat("a", -1, instance="i")
    driver.beat("b")
    assert driver.said()[-1] == "b <- epoch 4 [t0,1,2,3]"
    driver.enter("a3", instance="i")
    assert driver.said()[-1] == "a3 <- epoch 5 []"


def test_who_goes_while_it_should_give_up_is_not_timed_out_for_that(driver: ConsumerDriver) -> None:
    driver.enter("c")
    driver.enter("d")
    driver.beat("a", instance="i", timeout=5_000)
    driver.said()
    driver.beat("a", -2, instance="i")
    driver.advance(20_000)
    assert driver.said() == ["log current a -2 unrevoked [t0]", "a <- epoch -2"]


def test_a_new_coordinator_waits_for_who_is_away(driver: ConsumerDriver) -> None:
    away(driver)
    driver.reload()
    driver.advance(44_000)
    driver.enter("a2", instance="i")
    assert driver.said()[-1] == "a2 <- epoch 3 [t0,1]"


def test_a_new_coordinator_does_not_time_out_who_went_while_it_should_give_up(driver: ConsumerDriver) -> None:
    driver.enter("c")
    driver.enter("d")
    driver.beat("a", instance="i", timeout=5_000)
    assert driver.said()[-2].endswith("unrevoked [t0] -[t1]")
    driver.beat("a", -2, instance="i")
    driver.reload()
    driver.advance(20_000)
    assert "a" in driver.shard.consumers.groups["g"].members


def test_who_changes_its_instance_id_gives_the_old_one_up(driver: ConsumerDriver) -> None:
    driver.enter("a", instance="j")
    driver.beat("a", instance="i")
    assert driver.said()[-2:] == ["a <- epoch 3 [t0,1]", "a <- UNKNOWN_MEMBER_ID"]
    driver.enter("c", instance="i")
    assert driver.said()[-1] == "c <- epoch 4 []"
    driver.beat("a", -1, instance="j")
    driver.reload()
    for instance in ("i", "j"):
        driver.beat("a", -1, instance=instance)
    assert driver.said()[-2:] == ["a <- FENCED_INSTANCE_ID", "a <- UNKNOWN_MEMBER_ID"]


def test_a_member_is_not_put_in_the_place_of_another(driver: ConsumerDriver) -> None:
    away(driver)
    driver.enter("b", instance="i")
    assert driver.said() == ["b <- INVALID_REQUEST"]
    driver.enter("a2", instance="i")
    assert driver.said()[-1] == "a2 <- epoch 3 [t0,1]"


@pytest.mark.parametrize("member", ["a", "a2"])
def test_who_is_refused_when_it_comes_back_is_still_away(driver: ConsumerDriver, member: str) -> None:
    away(driver)
    driver.enter(member, topics=None, regex="(", instance="i")
    driver.advance(44_999)
    driver.beat("b")
    assert driver.said() == [f"{member} <- INVALID_REGULAR_EXPRESSION", "b <- epoch 3"]
    driver.advance(1)
    assert driver.said() == ["log current a gone", "log target a gone", "log member a gone", "log epoch 4"]


def test_who_comes_back_has_one_vote_for_an_assignor() -> None:
    driver = ConsumerDriver(t=2, u=2)
    driver.enter("a", instance="i", assignor="range")
    for member in ("b", "c"):
        driver.enter(member, "t u", assignor="uniform")
    driver.settle("a", "b", "c")
    driver.beat("a", -2, instance="i")
    driver.enter("a2", "t u", instance="i", assignor="range")
    driver.settle("a2", "b", "c")
    assert all(driver.has(member) for member in ("a2", "b", "c"))  # of a range, one would have nothing
