"""A coordinator that another one has replaced, and that has not heard of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from coordinator_node import Node, running, until
from log_in_memory import LogInMemory

from barnabas.coordinator.groups.core.records import OffsetRecord
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


async def test_a_zombie_cannot_commit(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5) is ErrorCode.none
        log.epochs[0] = 1  # the controller moves the partition; the old coordinator has not heard of it
        new.see("b", 1)
        async with running(new):
            assert await new.fetch() == 5
            assert await old.commit(6) is ErrorCode.not_coordinator
            assert await new.commit(7) is ErrorCode.none
            assert await old.fetch() is ErrorCode.coordinator_load_in_progress
            old.see("b", 1)
            assert await old.fetch() is ErrorCode.not_coordinator
            offsets = [record.value.offset for record in log.records() if isinstance(record, OffsetRecord)]  # type: ignore[union-attr]
            assert offsets == [5, 7]


@pytest.mark.parametrize("stable", [True, False])
async def test_a_zombie_tells_nobody_where_to_go_on(log: LogInMemory, stable: bool) -> None:
    """Transactions would write again what was written; and who was put back meanwhile would skip what is to come."""
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5) is ErrorCode.none
        assert await old.fetch(stable=stable) == 5
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(2) is ErrorCode.none
            assert await old.fetch(stable=stable) is ErrorCode.not_coordinator
            assert await old.fetch(stable=True) is ErrorCode.coordinator_load_in_progress
            assert await new.fetch(stable=stable) == 2


@pytest.mark.parametrize("stable", [True, False])
async def test_a_zombie_does_not_say_that_there_is_nothing(log: LogInMemory, stable: bool) -> None:
    """A reader would begin at the end, and skip what is before."""
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.fetch_all(stable=stable) == []
        assert await old.fetch(stable=stable) == -1
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(7) is ErrorCode.none
            first = old.fetch_all(stable=stable), old.fetch(stable=stable)
            assert await asyncio.gather(*first) == [ErrorCode.not_coordinator] * 2
            # Its log takes no writes now, and it tells what it has, but not that it has nothing.
            assert await old.fetch_all(stable=stable) is ErrorCode.coordinator_load_in_progress
            assert await old.fetch(stable=stable) is ErrorCode.coordinator_load_in_progress
            assert await new.fetch_all(stable=stable) == [7]


async def test_a_zombie_tells_no_offset_beside_one_that_is_pending(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5, topic="u") is ErrorCode.none
        assert await old.commit_in_transaction(6, topic="t") is ErrorCode.none
        assert await old.fetch_all() == [5]
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            request = pb.OffsetFetchRequest(
                group_id="g",
                topics=[pb.OffsetFetchTopic(name=name, partitions=[0]) for name in "tu"],
                require_stable=True,
                member_epoch=-1,
            )
            response = await old.calls.OffsetFetch(request)
            assert ErrorCode(response.error_code) is ErrorCode.not_coordinator


def static_join(member_id: str = "") -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[pb.GroupProtocol(name="range")],
    )


async def test_a_zombie_does_not_end_a_static_member_that_came_back(log: LogInMemory) -> None:
    """It knows the instance under the id of its process before: FENCED_INSTANCE_ID is the end of the new one."""
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        before = await old.calls.JoinGroup(static_join())
        await old.sync("g", before.member_id, before.generation_id)
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            await new.join(group="another")  # both nodes give the same ids in the same order
            member = await new.calls.JoinGroup(static_join())
            assert member.error_code == ErrorCode.none
            beat = pb.HeartbeatRequest(
                group_id="g",
                member_id=member.member_id,
                generation_id=member.generation_id,
                group_instance_id="i",
            )
            sync = pb.SyncGroupRequest(
                group_id="g",
                member_id=member.member_id,
                generation_id=member.generation_id,
                group_instance_id="i",
            )
            asked = old.calls.Heartbeat(beat), old.calls.SyncGroup(sync)
            asked_too = old.calls.JoinGroup(static_join(member.member_id))
            answers = await asyncio.gather(*asked, asked_too)
            assert {ErrorCode(answer.error_code) for answer in answers} == {ErrorCode.not_coordinator}
            assert (await old.calls.Heartbeat(beat)).error_code == ErrorCode.none, (
                "it goes on, as while loading"
            )
            assert (await new.calls.Heartbeat(beat)).error_code == ErrorCode.none


EPOCH = 2
"""Of the first member of a new group: the group is made in the first one."""


def newer_heartbeat(epoch: int, member_id: str = "m") -> pb.ConsumerGroupHeartbeatRequest:
    return pb.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=pb.SubscribedTopics(names=["t"]),
        topic_partitions=pb.OwnedPartitions(),
    )


async def test_a_zombie_refuses_no_member_that_it_has_not_heard_of(log: LogInMemory) -> None:
    commit = pb.OffsetCommitRequest(
        group_id="g",
        member_id="m",
        generation_id=EPOCH,
        knows_member_epochs=True,
        retention_time_ms=-1,
        topics=[pb.OffsetCommitTopic(name="t", partitions=[pb.OffsetCommitPartition(partition=0)])],
    )
    deletion = pb.DeleteGroupsRequest(group_ids=["g"])
    for ask in (
        lambda node: node.calls.ConsumerGroupHeartbeat(newer_heartbeat(EPOCH)),
        lambda node: node.calls.OffsetCommit(commit),
        lambda node: node.calls.DeleteGroups(deletion),
        lambda node: node.calls.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)),
        lambda node: node.calls.OffsetDelete(pb.OffsetDeleteRequest(group_id="g")),
    ):
        log = LogInMemory()
        old, new = Node("a", log), Node("b", log)
        old.see("a", 0, topics=("t",))
        async with running(old):
            assert await old.commit(5, group="another") is ErrorCode.none
            log.epochs[0] = 1
            new.see("b", 1, topics=("t",))
            async with running(new):
                joined = await new.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
                assert (joined.error_code, joined.member_epoch) == (ErrorCode.none, EPOCH)
                answer = await ask(old)
                assert _code(answer) is ErrorCode.not_coordinator, answer


def _code(answer: Any) -> ErrorCode:
    if hasattr(answer, "groups"):
        return ErrorCode(answer.groups[0].error_code)
    if answer.error_code if hasattr(answer, "error_code") else False:
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def test_answers_that_wait_take_a_bounded_amount_of_memory(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_ANSWERS_BYTES_MAX", 100)
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.gate = asyncio.Event()
        fetches = [asyncio.create_task(node.fetch(stable=True)) for _ in range(100)]
        await asyncio.sleep(0.01)
        refused = [each for each in fetches if each.done()]
        assert 50 < len(refused) < 100
        assert {await each for each in refused} == {ErrorCode.coordinator_load_in_progress}
        log.gate.set()
        assert {await each for each in fetches if each not in refused} == {5}
        assert await node.fetch(stable=True) == 5


async def test_what_was_sent_before_does_not_show_who_owns_the_partition(log: LogInMemory) -> None:
    """It landed; then the process was frozen, another one took over, and only now it hears of its write."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.answer_gate = asyncio.Event()
        commit = asyncio.create_task(node.commit(5))
        await until(lambda: len(log.records()) == 1)
        log.epochs[0] = 1
        fetch = asyncio.create_task(node.fetch(stable=True))
        await asyncio.sleep(0)
        log.answer_gate.set()
        assert await commit is ErrorCode.none
        assert await fetch is ErrorCode.not_coordinator


async def test_many_who_need_the_owner_share_what_is_written(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.gate = asyncio.Event()
        first = asyncio.create_task(node.fetch(stable=True))
        await until(lambda: log.tries == 3)
        end = log.ends[0]
        others = [asyncio.create_task(node.fetch(stable=True)) for _ in range(100)]
        await asyncio.sleep(0.01)
        assert not first.done()
        log.gate.set()
        assert await asyncio.gather(first, *others) == [5] * 101
        assert log.ends[0] == end + 2, "one barrier that was under way, and one behind it"
