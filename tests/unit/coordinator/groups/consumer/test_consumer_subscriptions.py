"""What members subscribe to, by names and regular expressions, and what becomes of it when topics come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_driver import ConsumerDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.records import RegexRecord
from barnabas.coordinator.limits import REGEX_NAMES_AT_ONCE
from barnabas.kernel.errors import ErrorCode


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(t=2, u=2)


def test_a_topic_that_is_not_there_yet_is_assigned_once_it_is() -> None:
    driver = ConsumerDriver()
    assert driver.enter("a", "new").error_code == 0
    driver.said()
    driver.beat("a")
    driver.create_topic("new", 2)
    driver.beat("a")
    assert driver.said() == [
        "a <- epoch 2",
        "log epoch 3",
        "log target a [new0,1]",
        "log target 3",
        "log current a 3 stable [new0,1]",
        "a <- epoch 3 [new0,1]",
    ]


def test_more_partitions_fewer_topics_and_the_same_name_again(driver: ConsumerDriver) -> None:
    driver.enter("a", "t u")
    driver.said()
    driver.create_topic("t", 3)
    driver.beat("a")
    assert driver.said()[-1] == "a <- epoch 3 [t0,1,2 u0,1]"
    driver.delete_topic("u")
    driver.beat("a", owned={"t": [0, 1, 2]})
    assert driver.said()[-1] == "a <- epoch 4 [t0,1,2]"
    driver.create_topic("u", 1)
    driver.beat("a")
    assert driver.said()[-1] == "a <- epoch 5 [t0,1,2 u0]"


def test_another_rack_is_news_another_leader_is_not(driver: ConsumerDriver) -> None:
    driver.put_node(1, "r1")
    driver.put_node(2, "r2")
    driver.enter("a", "t")
    driver.said()
    driver.move("t", 0, 1, epoch=5)
    driver.beat("a")
    assert driver.said() == ["a <- epoch 2"]
    driver.move("t", 0, 2)
    driver.beat("a")
    driver.put_node(2, "r3")
    driver.beat("a")
    driver.beat("a")
    said = [line for line in driver.said() if "current" not in line]
    assert said == [
        "log epoch 3",
        "log target 3",
        "a <- epoch 3",
        "log epoch 4",
        "log target 4",
        "a <- epoch 4",
        "a <- epoch 4",
    ]


def test_topics_of_others_are_nothing_to_a_group(driver: ConsumerDriver) -> None:
    driver.enter("a", "t")
    driver.beat("a")
    assert not driver.shard.consumers.groups["g"].needs_refresh
    driver.create_topic("other", 1)
    assert not driver.shard.consumers.groups["g"].needs_refresh
    driver.create_topic("t", 3)
    assert driver.shard.consumers.groups["g"].needs_refresh


def test_what_is_not_subscribed_any_more_is_given_up_even_if_the_target_still_has_it() -> None:
    driver = ConsumerDriver(interval=10_000, t=1, u=1)
    driver.enter("a", "t u")
    driver.said()
    driver.beat("a", topics="t")
    assert driver.said() == [
        "log member a",
        "log epoch 3",
        "log current a 2 unrevoked [t0] -[u0]",
        "a <- epoch 2 [t0]",
    ]
    driver.beat("a", owned={"t": [0]})
    assert driver.said() == ["log current a 2 stable [t0]", "a <- epoch 2"]


def test_nothing_subscribed_is_a_subscription(driver: ConsumerDriver) -> None:
    assert driver.enter("a", "").member_epoch == 1
    assert driver.beat("a", topics="t").member_epoch == 2
    driver.beat("a", topics="")
    assert driver.beat("a", owned={}).member_epoch == 3
    assert driver.has("a") == {}


def test_the_assignor_most_members_ask_for_counts() -> None:
    driver = ConsumerDriver(t=2, u=2)
    driver.enter("a", "t u", assignor="range")
    assert driver.description().assignor_name == "range"
    driver.enter("b", "t u", assignor="range")
    driver.enter("c", "t u", assignor="uniform")
    driver.settle("a", "b", "c")
    assert driver.has("c") == {}
    driver.beat("b", assignor="uniform")
    assert driver.description().assignor_name == "uniform"
    driver.create_topic("u", 5)
    driver.settle("a", "b", "c")
    assert len(driver.holders()) == 7
    assert driver.has("c") != {}


def test_an_assignor_that_is_not_configured_any_more_is_not_used() -> None:
    driver = ConsumerDriver(CoordinatorConfig(group_consumer_assignors=("range",)), t=3)
    driver.enter("a", assignor="uniform")
    driver.enter("b", assignor="uniform")
    driver.settle("a", "b")
    assert driver.has("a") == {"t": [0, 1]}


# -- regular expressions ------------------------------------------------------------------------------------


def test_a_regular_expression_matches_whole_names(driver: ConsumerDriver) -> None:
    driver.create_topic("tt", 1)
    driver.enter("a", None, regex="t|.t")
    assert driver.said() == [
        "log member a",
        "log current a 1 stable []",
        "a <- epoch 1 []",
        "log regex t|.t t,tt",
        "log epoch 2",
    ]
    driver.beat("a")
    assert driver.said() == [
        "log target a [t0,1 tt0]",
        "log target 2",
        "log current a 2 stable [t0,1 tt0]",
        "a <- epoch 2 [t0,1 tt0]",
    ]


def test_a_bad_regular_expression_is_refused_and_changes_nothing(driver: ConsumerDriver) -> None:
    reply = driver.enter("a", None, regex="(")
    assert reply.error_code == ErrorCode.invalid_regular_expression
    assert "SubscribedTopicRegex `(`" in reply.error_message
    assert driver.said() == ["a <- INVALID_REGULAR_EXPRESSION"]
    driver.enter("a", "t")
    assert driver.beat("a", regex="(?=x)").error_code == ErrorCode.invalid_regular_expression
    assert driver.beat("a").error_code == 0


def test_a_new_topic_is_found_at_a_heartbeat_ten_seconds_after_the_last_time(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t.*")
    driver.beat("a")
    driver.create_topic("t2", 1)
    driver.advance(10_000)
    driver.said()
    driver.beat("a")
    assert driver.said() == ["a <- epoch 2"]
    driver.advance(1)
    driver.beat("a")
    assert driver.said() == ["a <- epoch 2", "log regex t.* t,t2", "log epoch 3"]
    driver.beat("a")
    assert driver.said()[-1] == "a <- epoch 3 [t0,1 t20]"


def test_a_deleted_topic_is_no_reason_to_look_again_but_a_reason_for_a_new_target(
    driver: ConsumerDriver,
) -> None:
    driver.enter("a", None, regex="t|u")
    driver.beat("a")
    driver.delete_topic("u")
    driver.advance(20_000)
    driver.said()
    driver.beat("a", owned={"t": [0, 1]})
    said = driver.said()
    assert said[0] == "log epoch 3"
    assert said[-1] == "a <- epoch 3 [t0,1]"
    assert not any("regex" in line for line in said)


def test_names_and_a_regular_expression_together_and_one_without_the_other(driver: ConsumerDriver) -> None:
    driver.enter("a", "t", regex="u")
    driver.beat("a")
    assert driver.has("a") == {"t": [0, 1], "u": [0, 1]}
    driver.said()
    driver.beat("a", regex="", owned={"t": [0, 1], "u": [0, 1]})
    assert driver.said() == [
        "log member a",
        "log regex u gone",
        "log epoch 4",
        "log target a [t0,1]",
        "log target 4",
        "log current a 3 unrevoked [t0,1] -[u0,1]",
        "a <- epoch 3 [t0,1]",
    ]
    driver.beat("a", owned={"t": [0, 1]})
    driver.beat("a", regex="u")
    driver.beat("a")
    assert driver.has("a") == {"t": [0, 1], "u": [0, 1]}


def test_the_last_subscriber_takes_the_regular_expression_with_it(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t")
    driver.enter("b", None, regex="t")
    driver.beat("a", -1)
    assert not any("regex t gone" in line for line in driver.said())
    driver.beat("b", -1)
    assert "log regex t gone" in driver.said()


def test_one_that_is_known_is_there_at_once(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t")
    driver.beat("a")
    driver.said()
    driver.enter("b", None, regex="t")
    assert "log epoch 3" in driver.said()


def test_a_group_of_several_finds_the_topics_of_all_and_writes_them_together(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t")
    driver.enter("b", None, regex="u")
    driver.beat("a")
    driver.said()
    driver.advance(10_001)
    driver.beat("b")
    assert driver.said()[-1] == "b <- epoch 2"
    driver.advance(1)
    assert driver.said() == ["log regex u u", "log regex t t", "log epoch 3"]
    driver.settle("a", "b")
    assert (driver.has("a"), driver.has("b")) == ({"t": [0, 1]}, {"u": [0, 1]})


def test_many_topics_are_looked_at_in_several_steps(driver: ConsumerDriver) -> None:
    driver.create_topics(*(f"n{number}" for number in range(2 * REGEX_NAMES_AT_ONCE)))
    driver.enter("a", None, regex="t|n[15].?|n9999")
    driver.said()
    driver.advance(1)
    assert driver.said() == []
    driver.advance(1)
    assert driver.said()[-1] == "log epoch 2"
    (resolved,) = driver.shard.consumers.groups["g"].resolved.values()
    assert len(resolved.topics) == 24


def test_what_matches_more_than_a_record_can_have_keeps_what_it_had(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex=".*")
    driver.settle("a")
    driver.create_topics(*(f"n{number}{'-' * 240}" for number in range(4_000)))
    driver.advance(10_001)
    driver.beat("a")
    driver.settle("a")
    driver.said()
    assert driver.has("a") == {"t": [0, 1], "u": [0, 1]}
    # It is not looked for again at each heartbeat.
    driver.advance(10_001)
    driver.beat("a")
    driver.advance(1)
    assert driver.said() == ["a <- epoch 2"]


def test_a_new_coordinator_looks_again(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t")
    driver.beat("a")
    driver.reload()
    driver.said()
    driver.beat("a")
    assert driver.said() == ["a <- epoch 2"]
    assert driver.description().members[0].subscribed_topic_regex == "t"


def test_a_coordinator_whose_clock_is_behind_looks_at_once(driver: ConsumerDriver) -> None:
    driver.enter("a", None, regex="t|n.*")
    found = driver.shard.consumers.groups["g"].resolved["t|n.*"]
    later = replace(found, timestamp_ms=found.timestamp_ms + 3_600_000)
    driver.shard.replay(RegexRecord("g", "t|n.*", later))
    driver.create_topic("new", 1)
    driver.advance(1)
    driver.beat("a")
    assert driver.shard.consumers.groups["g"].resolved["t|n.*"].topics == {"t", "new"}


def test_members_that_subscribe_alike_share_the_names(driver: ConsumerDriver) -> None:
    for member, topics in (("a", "t u"), ("b", "u t"), ("c", "t")):
        driver.enter(member, topics)
    driver.beat("c", topics="t u")
    driver.reload()
    members = driver.shard.consumers.groups["g"].members
    assert len({id(members[name].metadata.topic_names) for name in "abc"}) == 1
