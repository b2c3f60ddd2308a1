"""Offsets of consumer groups: who may commit and fetch, what administrators may delete, what expires."""

from __future__ import annotations

import pytest
from consumer_driver import ConsumerDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.offsets import txn_commit_refusal
from barnabas.coordinator.groups.core.commit import handle_commit
from barnabas.coordinator.groups.core.delete import handle_delete_group, handle_offset_delete
from barnabas.coordinator.groups.core.expiry import delete_offsets, offsets_of_topics
from barnabas.coordinator.groups.core.fetch import handle_fetch
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

MINUTE_MS = 60_000
NONE = "NONE"


class OffsetsDriver(ConsumerDriver):
    def committed(
        self, member: str, epoch: int, *partitions: int, topic: str = "t", knows: bool = True
    ) -> str:
        """Commit offset 5 for each; the code of all of them."""
        rows = [pb.OffsetCommitPartition(partition=index, committed_offset=5) for index in partitions or (0,)]
        request = pb.OffsetCommitRequest(
            group_id="g",
            generation_id=epoch,
            member_id=member,
            retention_time_ms=-1,
            knows_member_epochs=knows,
            topics=[
                pb.OffsetCommitTopic(name=topic, topic_id=self.ids.get(topic, bytes(16)), partitions=rows)
            ],
        )
        reply = self.replies[self.call("commit", handle_commit, request)]
        assert isinstance(reply, pb.OffsetCommitResponse)
        (code,) = {row.error_code for row in reply.topics[0].partitions}
        return ErrorCode(code).name.upper()

    def fetched(self, member: str | None, epoch: int) -> str | int:
        request = pb.OffsetFetchRequest(
            group_id="g",
            topics=[pb.OffsetFetchTopic(name="t", partitions=[0])],
            member_id=member,
            member_epoch=epoch,
        )
        reply = self.replies[self.call("fetch", handle_fetch, request)]
        assert isinstance(reply, pb.OffsetFetchResponse)
        if reply.error_code:
            return ErrorCode(reply.error_code).name.upper()
        return reply.topics[0].partitions[0].committed_offset

    def deleted(self, *topics: str) -> list[str]:
        """Delete offsets of partition 0 of the topics."""
        asked = [pb.OffsetFetchTopic(name=name, partitions=[0]) for name in topics]
        request = pb.OffsetDeleteRequest(group_id="g", topics=asked)
        reply = self.replies[self.call("delete", handle_offset_delete, request)]
        assert isinstance(reply, pb.OffsetDeleteResponse)
        if reply.error_code:
            return [ErrorCode(reply.error_code).name.upper()]
        return [ErrorCode(topic.partitions[0].error_code).name.upper() for topic in reply.topics]

    def delete_group(self) -> str:
        reply = self.replies[self.call("delete", handle_delete_group, "g")]
        assert isinstance(reply, pb.DeletedGroup)
        return ErrorCode(reply.error_code).name.upper()

    def show(self, message: object) -> str:
        if isinstance(message, pb.OffsetDeleteResponse | pb.DeletedGroup):
            return "deleted"
        return super().show(message)


@pytest.fixture
def driver() -> OffsetsDriver:
    return OffsetsDriver(t=4, u=1)


def test_a_member_commits_and_fetches_in_its_epoch(driver: OffsetsDriver) -> None:
    driver.enter("a")
    assert driver.committed("a", 2) == NONE
    assert driver.committed("a", 3) == "STALE_MEMBER_EPOCH"
    assert driver.committed("a", 2, knows=False) == "UNSUPPORTED_VERSION"
    assert driver.committed("b", 2) == "UNKNOWN_MEMBER_ID"
    assert driver.committed("", -1) == "UNKNOWN_MEMBER_ID"
    assert driver.fetched("a", 2) == 5
    assert driver.fetched(None, -1) == 5
    assert driver.fetched("a", 1) == "STALE_MEMBER_EPOCH"
    assert driver.fetched("a", -1) == "STALE_MEMBER_EPOCH"
    assert driver.fetched("b", 2) == "UNKNOWN_MEMBER_ID"


def test_an_older_epoch_is_good_for_what_was_given_in_it_and_is_still_held(driver: OffsetsDriver) -> None:
    driver.enter("a")
    driver.enter("b")
    driver.beat("a")
    assert driver.committed("a", 2, 0, 3) == NONE  # 3 is to be given up, and is not yet
    driver.settle("a", "b")
    assert driver.epochs == {"a": 3, "b": 3}
    assert driver.committed("a", 2, 0, 1) == NONE
    assert driver.committed("a", 2, 0, 3) == "STALE_MEMBER_EPOCH"
    assert driver.committed("a", 1, 0) == "STALE_MEMBER_EPOCH"
    assert driver.committed("b", 2, 3) == "STALE_MEMBER_EPOCH"
    assert driver.committed("b", 3, 3) == NONE


def test_a_lone_consumer_commits_while_there_are_no_members(driver: OffsetsDriver) -> None:
    assert driver.committed("", -1) == NONE
    driver.enter("a")
    assert driver.fetched("a", 2) == 5
    driver.beat("a", -1)
    assert driver.committed("", -1, 1) == NONE
    assert driver.committed("a", 2, 1) == "UNKNOWN_MEMBER_ID"


def test_offsets_inside_transactions_go_by_epochs_that_are_said(driver: OffsetsDriver) -> None:
    driver.enter("a")
    group = driver.shard.consumers.groups["g"]

    def refusal(member: str, epoch: int, partition: int = 0) -> ErrorCode:
        row = pb.OffsetCommitPartition(partition=partition)
        topic = pb.OffsetCommitTopic(name="t", topic_id=driver.ids["t"], partitions=[row])
        return txn_commit_refusal(
            group, pb.TxnOffsetCommitRequest(member_id=member, generation_id=epoch, topics=[topic])
        )

    assert refusal("", -1) is ErrorCode.none
    assert refusal("a", 2) is ErrorCode.none
    assert refusal("a", 3) is ErrorCode.illegal_generation
    assert refusal("a", 1) is ErrorCode.illegal_generation
    assert refusal("b", 2) is ErrorCode.unknown_member_id


def test_offsets_of_topics_that_are_read_are_not_deleted(driver: OffsetsDriver) -> None:
    driver.enter("a", "t", regex="u")
    driver.beat("a")
    driver.committed("a", driver.epochs["a"])
    driver.committed("a", driver.epochs["a"], topic="other")
    assert driver.deleted("t", "u", "other", "nothing") == [
        "GROUP_SUBSCRIBED_TO_TOPIC",
        "GROUP_SUBSCRIBED_TO_TOPIC",
        NONE,
        NONE,
    ]
    assert set(driver.shard.offsets["g"]) == {"t"}
    driver.beat("a", -1)
    assert driver.deleted("t") == [NONE]
    assert "g" not in driver.shard.offsets


def test_a_group_without_members_is_deleted_with_its_offsets(driver: OffsetsDriver) -> None:
    assert driver.delete_group() == "GROUP_ID_NOT_FOUND"
    driver.enter("a", None, regex="t")
    driver.beat("a")
    driver.committed("a", driver.epochs["a"])
    assert driver.delete_group() == "NON_EMPTY_GROUP"
    driver.beat("a", -1)
    driver.said()
    assert driver.delete_group() == NONE
    assert driver.said() == [
        "log offset g t-0 gone",
        "log target gone",
        "log topics gone",
        "log epoch gone",
        "delete <- deleted",
    ]
    assert driver.delete_group() == "GROUP_ID_NOT_FOUND"
    driver.reload()
    assert (driver.shard.groups, driver.shard.consumers.groups, driver.shard.offsets) == ({}, {}, {})


def test_offsets_expire_by_their_commits_once_nobody_reads_the_topic() -> None:
    config = CoordinatorConfig(offsets_retention_minutes=2, offsets_retention_check_interval_ms=MINUTE_MS)
    driver = OffsetsDriver(config, t=1, u=1)
    driver.set_times(session_timeout_ms=100 * MINUTE_MS)
    driver.enter("a", "t u")
    driver.committed("a", 2)
    driver.committed("a", 2, topic="u")
    driver.advance(5 * MINUTE_MS)
    assert set(driver.shard.offsets["g"]) == {"t", "u"}
    driver.beat("a", topics="t")
    driver.advance(MINUTE_MS)
    assert set(driver.shard.offsets["g"]) == {"t"}
    driver.beat("a", -1)
    driver.advance(MINUTE_MS)
    assert "g" not in driver.shard.offsets
    assert "g" not in driver.shard.consumers
    driver.reload()
    assert "g" not in driver.shard.consumers


def test_a_group_that_lost_its_members_and_has_offsets_stays() -> None:
    config = CoordinatorConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    driver = OffsetsDriver(config, t=1)
    driver.enter("a")
    driver.committed("a", 2)
    driver.beat("a", -1)
    driver.advance(9 * MINUTE_MS)
    assert "g" in driver.shard.consumers
    driver.advance(2 * MINUTE_MS)
    assert "g" not in driver.shard.consumers


def test_offsets_of_open_transactions_keep_a_consumer_group_and_go_with_it() -> None:
    config = CoordinatorConfig(offsets_retention_minutes=2, offsets_retention_check_interval_ms=MINUTE_MS)
    driver = OffsetsDriver(config, t=1)
    producer = Producer(7, 0)
    driver.enter("a")
    driver.commit_in_transaction(producer, offset=9)
    driver.beat("a", -1)
    driver.advance(5 * MINUTE_MS)
    assert "g" in driver.shard.consumers
    assert driver.fetched(None, -1) == -1
    driver.complete(producer)
    assert driver.fetched(None, -1) == 9
    assert "g" not in driver.shard.groups
    driver.commit_in_transaction(producer, offset=10)
    assert driver.delete_group() == NONE
    driver.complete(producer)
    assert ("g" in driver.shard.consumers, driver.fetched(None, -1)) == (False, -1)


def test_what_was_committed_for_another_topic_of_the_name_is_not_told_and_stays_when_that_is_deleted() -> (
    None
):
    driver = OffsetsDriver(t=1)
    old = driver.ids["t"]
    driver.enter("a")
    assert driver.committed("a", 2) == NONE

    def fetched_for(topic_id: bytes) -> int:
        topic = pb.OffsetFetchTopic(name="t", partitions=[0], topic_id=topic_id)
        request = pb.OffsetFetchRequest(group_id="g", topics=[topic], member_epoch=-1)
        reply = driver.replies[driver.call("fetch", handle_fetch, request)]
        assert isinstance(reply, pb.OffsetFetchResponse)
        return reply.topics[0].partitions[0].committed_offset

    new = b"n" * 16
    assert [fetched_for(old), fetched_for(new), fetched_for(b"")] == [5, -1, 5]
    found = offsets_of_topics(driver.shard, {new: "t"})
    driver.take(lambda decision: delete_offsets(driver.shard, found, decision))
    assert fetched_for(old) == 5
    found = offsets_of_topics(driver.shard, {old: "t"})
    driver.take(lambda decision: delete_offsets(driver.shard, found, decision))
    assert fetched_for(old) == -1
