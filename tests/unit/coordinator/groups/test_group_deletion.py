"""DeleteGroups and OffsetDelete: what is refused, what is written, and what a new coordinator finds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from coordinator_driver import GROUP, ShardDriver

from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.delete import handle_delete_group, handle_offset_delete
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver()


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def written(driver: ShardDriver) -> list[str]:
    return [line for line in driver.said() if line.startswith("log ")]


def answer(driver: ShardDriver, handle: Callable[[Waiter, Decision], None]) -> Any:
    """What the caller of `handle` is told; the driver's trace shows only the records."""
    replies: list[Any] = []

    def take(_: GroupShard, __: object, waiter: Waiter, decision: Decision) -> None:
        handle(waiter, decision)
        replies.append(decision.replies.pop()[1])

    driver.call("delete", take, None)
    (reply,) = replies
    return reply


def delete(driver: ShardDriver, group_id: str = GROUP) -> ErrorCode:
    reply = answer(
        driver, lambda waiter, decision: handle_delete_group(driver.shard, group_id, waiter, decision)
    )
    assert reply.group_id == group_id
    return ErrorCode(reply.error_code)


def delete_offsets(driver: ShardDriver, *topics: str, partitions: tuple[int, ...] = (0,)) -> list[ErrorCode]:
    """The group's code where it is refused as a whole, else one a partition."""
    request = pb.OffsetDeleteRequest(
        group_id=GROUP, topics=[pb.OffsetFetchTopic(name=name, partitions=partitions) for name in topics]
    )
    reply = answer(
        driver, lambda waiter, decision: handle_offset_delete(driver.shard, request, waiter, decision)
    )
    if reply.error_code:
        assert not reply.topics
        return [ErrorCode(reply.error_code)]
    assert [topic.name for topic in reply.topics] == list(topics)
    return [ErrorCode(p.error_code) for topic in reply.topics for p in topic.partitions]


def test_a_group_that_does_not_exist(driver: ShardDriver) -> None:
    assert delete(driver) is ErrorCode.group_id_not_found
    assert delete_offsets(driver, "t") == [ErrorCode.group_id_not_found]
    assert driver.log == []


def test_a_group_goes_with_its_offsets(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a")
    driver.commit(a, 1, offset=5)
    driver.commit(a, 1, offset=6, topic="u")
    assert delete(driver) is ErrorCode.non_empty_group
    driver.leave(a)
    driver.advance(10_000)
    driver.said()
    assert delete(driver) is ErrorCode.none
    assert written(driver) == ["log offset g t-0 gone", "log offset g u-0 gone", "log group g gone"]
    assert delete(driver) is ErrorCode.group_id_not_found
    driver.reload()
    assert (driver.shard.groups, driver.shard.offsets, driver.shard.stored) == ({}, {}, {})
    assert driver.fetch() == -1


def test_a_group_that_only_committed_goes_too(driver: ShardDriver) -> None:
    driver.commit("", -1)
    assert delete(driver) is ErrorCode.none
    assert driver.shard.groups == {}


def test_a_group_that_the_log_never_knew_goes_without_a_record(driver: ShardDriver) -> None:
    driver.join("a")
    assert driver.shard.groups[GROUP].pending_members
    driver.said()
    assert delete(driver) is ErrorCode.none
    assert (written(driver), driver.shard.groups) == ([], {})
    driver.advance(60_000)


def test_a_rebalancing_group_is_not_empty(driver: ShardDriver) -> None:
    driver.join("a", known=False)
    assert delete(driver) is ErrorCode.non_empty_group


def test_offsets_of_topics_that_nobody_reads(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a", metadata=subscription("read"))
    for topic in ("read", "left"):
        driver.commit(a, 1, topic=topic)
    driver.said()
    codes = delete_offsets(driver, "read", "left", partitions=(0, 1))
    assert codes == [ErrorCode.group_subscribed_to_topic] * 2 + [ErrorCode.none] * 2
    assert written(driver) == ["log offset g left-0 gone"]
    assert (driver.fetch("read"), driver.fetch("left")) == (1, -1)


@pytest.mark.parametrize("metadata", [b"?", struct.pack(">hi", 1, -2)])
def test_a_subscription_that_cannot_be_read_protects_all_offsets(
    driver: ShardDriver, metadata: bytes
) -> None:
    (a,) = driver.stable_group("a", metadata=metadata)
    driver.commit(a, 1)
    assert delete_offsets(driver, "t") == [ErrorCode.group_subscribed_to_topic]


def test_only_subscriptions_of_consumers_are_known(driver: ShardDriver) -> None:
    (a,) = driver.stable_group("a", kind="connect")
    driver.commit(a, 1)
    assert delete_offsets(driver, "t") == [ErrorCode.non_empty_group]
    driver.leave(a)
    driver.advance(10_000)
    assert delete_offsets(driver, "t") == [ErrorCode.none]
    assert driver.fetch() == -1
