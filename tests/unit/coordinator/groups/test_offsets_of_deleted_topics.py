"""What becomes of offsets when their topic is deleted, and another one has its name at once."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running, until, until_writing
from log_in_memory import LogInMemory

from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

NONE = ErrorCode.none
NOTHING = -1
OLD = b"t" * 16
"""The id that `Node.see` gives the topic t."""
NEW = b"n" * 16
"""That of the next topic of the name, which the coordinator need not have heard of yet."""
GROUPS = [f"g{number}" for number in range(30)]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.OFFSETS_DELETED_AT_ONCE", 10)
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MIN", 0)


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@pytest.fixture
def node(log: LogInMemory) -> Node:
    node = Node("a", log)
    node.see("a", topics=("t",))
    return node


def left(node: Node) -> list[str]:
    return [group for shard in node.coordinator.partitions.shards() for group in shard.offsets]


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_they_are_told_no_more_although_their_turn_is_still_to_come(node: Node) -> None:
    """A consumer of the new topic would begin in its middle."""
    async with running(node):
        for group in GROUPS:
            assert await node.commit(5, group=group, topic_id=OLD) is NONE
        node.see("a", deleted=("t",))
        assert len(left(node)) == 20
        assert await node.fetch(group=left(node)[-1]) == NOTHING
        assert await node.fetch(group="g0") == NOTHING


async def test_a_log_that_takes_no_writes_meanwhile_keeps_them_to_itself(
    node: Node, log: LogInMemory
) -> None:
    async with running(node):
        for group in GROUPS:
            assert await node.commit(5, group=group, topic_id=OLD) is NONE
        log.fail_with = ErrorCode.kafka_storage_error
        refused = asyncio.create_task(node.commit(1, group="other"))
        await until(lambda: node.state() is PartitionState.READ_ONLY)
        node.see("a", deleted=("t",))
        await some_turns()
        assert await node.fetch(group="g3") is ErrorCode.coordinator_load_in_progress
        log.fail_with = None
        await refused
        await until_writing(node)
        assert await node.fetch(group="g3") == NOTHING
        assert len(left(node)) == 31, "nobody was there to delete them"
        for look in range(1, 4):  # for expired ones, a few at a time
            node.clock.advance(600_000)
            await node.coordinator.partitions.on_time()
            assert len(left(node)) == 31 - 10 * look


async def test_a_transaction_for_the_new_topic_that_is_aborted_brings_none_back(node: Node) -> None:
    async with running(node):
        for group in GROUPS:
            assert await node.commit(5, group=group, topic_id=OLD) is NONE
        node.see("a", deleted=("t",))
        group = left(node)[-1]
        deleting = asyncio.create_task(some_turns())
        assert await node.commit_in_transaction(7, group=group, topic_id=NEW) is NONE
        await deleting
        assert await node.complete(committed=False) is NONE
        assert await node.fetch(group=group, stable=True) == NOTHING


@pytest.mark.parametrize("is_open", [False, True], ids=["committed", "open"])
async def test_a_transaction_for_the_new_topic_counts_whenever_the_coordinator_hears_of_it(
    node: Node, is_open: bool
) -> None:
    """Its gateway may have heard of the new topic before the coordinator hears that the old one is gone."""
    async with running(node):
        assert await node.commit(9, topic_id=OLD) is NONE
        assert await node.commit_in_transaction(2, topic_id=NEW) is NONE
        if not is_open:
            assert await node.complete() is NONE
        node.see("a", deleted=("t",))
        await some_turns()
        if is_open:
            assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 2


async def test_a_transaction_for_the_old_topic_ends_with_it(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(2, topic_id=OLD) is NONE
        node.see("a", deleted=("t",))
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == NOTHING
        assert left(node) == []


async def test_a_transaction_for_the_old_topic_takes_nothing_of_the_new_one_with_it(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(5, topic_id=OLD) is NONE
        assert await node.commit(2, topic_id=NEW) is NONE
        node.see("a", deleted=("t",))
        await some_turns()
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 2


async def test_what_is_committed_for_the_old_topic_later_is_not_taken(node: Node, log: LogInMemory) -> None:
    """Its gateway is behind: by name, the client may mean the new topic, and is to be heard once that is known."""
    async with running(node):
        node.see("a", deleted=("t",))
        before = len(log.records())
        assert await node.commit(5, topic_id=OLD) is ErrorCode.coordinator_load_in_progress
        assert await node.commit_in_transaction(5, topic_id=OLD) is ErrorCode.coordinator_load_in_progress
        assert len(log.records()) == before
        assert await node.commit(5, topic_id=NEW) is NONE
        assert await node.fetch() == 5


async def leave_behind(node: Node, group: str, producer: tuple[int, int]) -> None:
    """A transaction for the new topic keeps what the group committed for the old one until it is aborted."""
    assert await node.commit(5, group=group, topic_id=OLD) is NONE
    assert await node.commit_in_transaction(7, group=group, topic_id=NEW, producer=producer) is NONE


async def look_for_expired_ones(node: Node) -> None:
    node.clock.advance(600_000)
    await node.coordinator.partitions.on_time()


async def test_a_look_for_what_is_left_over_takes_nothing_of_other_topics(node: Node) -> None:
    async with running(node):
        await leave_behind(node, "left over", (7, 0))
        assert await node.commit(5, group="of another topic", topic="u", topic_id=b"u" * 16) is NONE
        node.see("a", deleted=("t",))
        assert await node.complete(committed=False) is NONE
        assert await node.commit(5, group="of the new one", topic_id=NEW) is NONE
        assert await node.commit(5, group="without an id") is NONE
        assert len(left(node)) == 4
        await look_for_expired_ones(node)
        assert left(node) == ["of another topic", "of the new one", "without an id"]


async def test_what_open_transactions_keep_is_not_in_the_way_of_what_is_left_over(node: Node) -> None:
    async with running(node):
        for group in GROUPS[:10]:
            await leave_behind(node, group, (7, 0))
        await leave_behind(node, "left over", (8, 0))
        node.see("a", deleted=("t",))
        await some_turns()
        assert await node.complete(producer=(8, 0), committed=False) is NONE
        assert left(node) == [*GROUPS[:10], "left over"]
        await look_for_expired_ones(node)
        assert left(node) == GROUPS[:10]


async def told(node: Node, group: str, topic_id: bytes | None = None) -> dict[str, dict[int, int]]:
    """What the group has committed: for all topics, or for partitions 0 and 1 of the topic t with this id."""
    by_id = [] if topic_id is None else [pb.OffsetFetchTopic(name="t", topic_id=topic_id, partitions=[0, 1])]
    request = pb.OffsetFetchRequest(
        group_id=group, topics=by_id, all_topics=topic_id is None, member_epoch=-1
    )
    answer = await node.calls.OffsetFetch(request)
    return {
        topic.name: {each.partition: each.committed_offset for each in topic.partitions}
        for topic in answer.topics
    }


async def test_who_asks_for_all_topics_is_told_of_what_counts(node: Node) -> None:
    """Of a topic with nothing else there is not even the name."""
    async with running(node):
        for group in ("mixed", "old alone"):
            await leave_behind(node, group, (7, 0))
        assert await node.commit(3, group="mixed", topic="u", topic_id=b"u" * 16) is NONE
        node.see("a", deleted=("t",))
        assert await node.complete(committed=False) is NONE
        assert await node.commit(4, group="mixed", partition=1, topic_id=NEW) is NONE
        assert await told(node, "mixed") == {"t": {1: 4}, "u": {0: 3}}
        assert await told(node, "old alone") == {}


async def test_who_asks_by_id_is_told_what_was_committed_for_that_topic_or_for_a_name(node: Node) -> None:
    async with running(node):
        assert await node.commit(5, topic_id=OLD) is NONE
        assert await node.commit(6, partition=1) is NONE
        assert await told(node, "g", OLD) == {"t": {0: 5, 1: 6}}
        assert await told(node, "g", NEW) == {"t": {0: NOTHING, 1: 6}}
