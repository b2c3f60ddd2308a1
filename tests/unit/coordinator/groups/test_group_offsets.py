"""Commits, fetches, expiry and what a new coordinator finds."""

from __future__ import annotations

import struct

import pytest
from coordinator_driver import GROUP, ShardDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.deadlines import start_afresh
from barnabas.coordinator.groups.core.describe import describe_group, list_groups
from barnabas.coordinator.groups.core.expiry import delete_offsets, offsets_of_topics
from barnabas.coordinator.groups.core.records import GroupRecord, MarkerRecord, OffsetRecord
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.kernel.errors import ErrorCode

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver(CoordinatorConfig(offsets_retention_minutes=24 * 60))


def subscription(*topics: str) -> bytes:
    """Version 3 of the consumer's subscription, of which version 0 is the prefix."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 3, len(topics)) + names + struct.pack(">iii", -1, 0, -1)


def test_a_lone_consumer_commits_to_an_empty_group(driver: ShardDriver) -> None:
    assert driver.fetch() == -1
    driver.commit("", -1, offset=42)
    assert driver.fetch() == 42
    driver.commit("", 3)
    driver.commit("m", 3)
    assert driver.said()[-2:] == ["commit - <- UNKNOWN_MEMBER_ID", "commit m <- UNKNOWN_MEMBER_ID"]


def test_a_generation_in_no_group_has_no_group(driver: ShardDriver) -> None:
    driver.commit("m", 3)
    assert driver.said() == ["commit m <- GROUP_ID_NOT_FOUND"]


def test_a_lone_consumer_may_not_disturb_a_group_with_members(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.commit("", -1)
    driver.commit(a, -1)
    driver.commit(a, 1)
    assert driver.said() == [
        "commit - <- UNKNOWN_MEMBER_ID",
        f"commit {a} <- ILLEGAL_GENERATION",
        "log offset g t-0 1",
        f"commit {a} <- NONE",
    ]


def test_metadata_is_limited_in_utf_16_units(driver: ShardDriver) -> None:
    driver.commit("", -1, metadata="x" * 4096)
    driver.commit("", -1, metadata="x" * 4097)
    driver.commit("", -1, metadata="😀" * 2048)
    driver.commit("", -1, metadata="😀" * 2049)
    assert (
        driver.said()
        == [
            "log offset g t-0 1",
            "commit - <- NONE",
            "commit - <- OFFSET_METADATA_TOO_LARGE",
        ]
        * 2
    )


def test_metadata_fits_the_record_whatever_the_setting_says() -> None:
    driver = ShardDriver(CoordinatorConfig(offset_metadata_max_bytes=1_000_000))
    driver.commit("", -1, metadata="x" * 32_767)
    driver.commit("", -1, metadata="x" * 32_768)
    driver.commit("", -1, metadata="\u20ac" * 10_922)
    driver.commit("", -1, metadata="\u20ac" * 10_923)
    assert [line for line in driver.said() if line.startswith("commit")] == [
        "commit - <- NONE",
        "commit - <- OFFSET_METADATA_TOO_LARGE",
    ] * 2


def test_a_commit_keeps_the_session_alive(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    for _ in range(5):
        driver.advance(9_000)
        driver.commit(a, 1)
    driver.said()
    driver.heartbeat(a, 1)
    assert driver.said() == [f"heartbeat {a} <- NONE"]


def test_offsets_outlive_the_coordinator(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.commit(a, driver.shard.groups[GROUP].generation, offset=5)
    generation = driver.shard.groups[GROUP].generation
    stored, offsets = dict(driver.shard.stored), driver.shard.offsets
    driver.reload()
    assert (driver.shard.stored, driver.shard.offsets) == (stored, offsets)
    driver.said()
    driver.heartbeat(a, generation)
    driver.commit(b, generation, offset=6)
    driver.advance(9_999)
    driver.heartbeat(b, generation)
    assert driver.said() == [
        f"heartbeat {a} <- NONE",
        "log offset g t-0 6",
        f"commit {b} <- NONE",
        f"heartbeat {b} <- NONE",
    ]
    driver.advance(1)
    driver.heartbeat(b, generation)
    assert driver.said() == [f"heartbeat {b} <- REBALANCE_IN_PROGRESS"]


def test_a_group_that_everybody_left_is_empty_for_the_next_coordinator_too(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.leave(a)
    driver.reload()
    assert describe_group(driver.shard, GROUP).state == "Empty"


def test_a_lone_consumer_s_offsets_expire_after_its_last_commit(driver: ShardDriver) -> None:
    driver.commit("", -1)
    driver.advance(DAY - MINUTE)
    driver.commit("", -1, topic="u")
    driver.said()
    driver.advance(20 * MINUTE)
    assert driver.said() == ["log offset g t-0 gone"]
    driver.advance(DAY)
    assert driver.said() == ["log offset g u-0 gone", "log group g gone"]
    assert not driver.shard.groups


def test_a_group_s_offsets_expire_after_its_last_member_left(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a", session=1_800_000)
    driver.commit(a, 1)
    for _ in range(80):
        driver.advance(20 * MINUTE)
        driver.heartbeat(a, 1)
    driver.leave(a)
    driver.advance(DAY - MINUTE)
    assert "log offset g t-0 gone" not in driver.said()
    driver.advance(11 * MINUTE)
    assert driver.said() == ["log offset g t-0 gone", "log group g gone"]


def test_a_stable_group_loses_only_what_it_no_longer_reads(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a", session=1_800_000, metadata=subscription("t", "v"))
    driver.commit(a, 1, topic="t")
    driver.commit(a, 1, topic="u")
    for _ in range(80):
        driver.advance(20 * MINUTE)
        driver.heartbeat(a, 1)
    assert [line for line in driver.said() if line.startswith("log")] == [
        "log offset g t-0 1",
        "log offset g u-0 1",
        "log offset g u-0 gone",
    ]


@pytest.mark.parametrize(
    "metadata", [b"\x00", struct.pack(">hi", 1, -2), struct.pack(">hihB", 1, 1, 1, 0xFF)]
)
def test_an_unreadable_subscription_keeps_offsets(driver: ShardDriver, metadata: bytes) -> None:
    (a,) = driver.stable_group("a", session=1_800_000, metadata=metadata)
    driver.commit(a, 1)
    driver.said()
    for _ in range(80):
        driver.advance(20 * MINUTE)
        driver.heartbeat(a, 1)
    assert not [line for line in driver.said() if line.startswith("log")]


def test_a_client_s_own_retention_wins(driver: ShardDriver) -> None:
    driver.commit("", -1, retention=30 * MINUTE)
    driver.said()
    driver.advance(29 * MINUTE)
    assert driver.said() == []
    driver.advance(2 * MINUTE)
    assert driver.said() == ["log offset g t-0 gone", "log group g gone"]


def test_the_longest_retention_is_for_ever(driver: ShardDriver) -> None:
    driver.commit("", -1, offset=7, retention=2**63 - 1)
    driver.advance(30 * DAY)
    assert driver.fetch() == 7


def test_a_group_that_nobody_joined_is_forgotten_without_a_record(driver: ShardDriver) -> None:
    driver.join("a")
    assert list(driver.shard.groups) == [GROUP]
    driver.advance(11 * MINUTE)
    assert not driver.shard.groups
    assert driver.log == []


def test_deleted_topics_take_their_offsets_along(driver: ShardDriver) -> None:
    driver.commit("", -1, topic="t")
    driver.commit("", -1, topic="u")
    driver.said()
    found = offsets_of_topics(driver.shard, {b"1": "t", b"2": "w"})
    driver.take(lambda decision: delete_offsets(driver.shard, found, decision))
    assert driver.said() == ["log offset g t-0 gone"]


def test_a_group_above_a_lowered_limit_rebalances_when_loaded(driver: ShardDriver) -> None:
    a, b = driver.stable_group("a", "b")
    driver.config = CoordinatorConfig(group_max_size=1)
    driver.reload()
    generation = driver.shard.groups[GROUP].generation
    driver.heartbeat(a, generation)
    driver.join("b", b)
    driver.join("a", a)
    trace = driver.said()
    assert trace[0] == f"heartbeat {a} <- REBALANCE_IN_PROGRESS"
    assert "join a <- GROUP_MAX_SIZE_REACHED" in trace


def test_descriptions_and_lists(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    described = describe_group(driver.shard, GROUP)
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.metadata, member.assignment) == (a, b"range", b"p")
    assert member.client.client_host == "/127.0.0.1"
    driver.join("b")
    driver.join("a", a)
    described = describe_group(driver.shard, GROUP)
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert described.members[0].metadata == b""
    missing = describe_group(driver.shard, "nobody")
    assert (missing.state, missing.error_code) == ("Dead", ErrorCode.group_id_not_found)
    (listed,) = list_groups(driver.shard, {"preparingrebalance"}, {"classic"})
    assert (listed.group_id, listed.state, listed.type) == (GROUP, "PreparingRebalance", "classic")
    assert not list(list_groups(driver.shard, {"stable"}, set()))
    assert not list(list_groups(driver.shard, set(), {"consumer"}))


P = Producer(7, 0)


def test_nothing_expires_where_a_transaction_has_another_offset(driver: ShardDriver) -> None:
    driver.commit("", -1)
    driver.commit("", -1, topic="u")
    driver.commit_in_transaction(P, 5)
    driver.said()
    driver.advance(2 * DAY)
    assert driver.said() == ["log offset g u-0 gone"]
    driver.complete(P, committed=False)
    driver.advance(DAY)
    assert driver.said() == ["log abort 7", "end 7 <- NONE", "log offset g t-0 gone", "log group g gone"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_group_of_pending_offsets_alone_is_there(driver: ShardDriver, committed: bool) -> None:
    driver.commit_in_transaction(P, 5)
    driver.reload()
    assert driver.said() == ["log offset g t-0 5 in 7", "commit in 7 <- NONE"]
    driver.advance(2 * DAY)
    assert describe_group(driver.shard, GROUP).state == "Empty"
    assert driver.said() == []
    driver.complete(P, committed=committed)
    assert driver.fetch() == (5 if committed else -1)
    driver.said()
    driver.advance(20 * MINUTE)
    assert driver.said() == (["log offset g t-0 gone", "log group g gone"] if committed else [])
    assert not driver.shard.groups


def test_a_tombstone_of_a_group_leaves_it_while_offsets_of_it_may_come_to_count(driver: ShardDriver) -> None:
    """As it may stand between older and newer facts, once compaction has been there."""
    driver.commit_in_transaction(P, 5)
    driver.log.append(GroupRecord(GROUP, None))
    driver.reload()
    driver.complete(P)
    assert driver.fetch() == 5
    assert describe_group(driver.shard, GROUP).state == "Empty"


def test_what_cannot_be_written_leaves_a_group_of_pending_offsets(driver: ShardDriver) -> None:
    driver.commit_in_transaction(P, 5)
    records = [OffsetRecord(GROUP, "t", 0, None), MarkerRecord(P, committed=True, coordinator_epoch=0)]
    driver.take(lambda decision: start_afresh(driver.shard, records, decision) and None)
    assert GROUP in driver.shard.groups
