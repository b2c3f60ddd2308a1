"""A coordinator that another one has replaced, and that has not heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from coordinator_node import Node, newer_heartbeat, running, until, until_writing
from log_in_memory import LogInMemory

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.records import OffsetRecord
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


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


async def test_a_zombie_does_not_say_that_there_is_nothing_to_delete(log: LogInMemory) -> None:
    """Of a group that it knows: whoever deletes offsets to read anew would go on from those that are there."""
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5, topic="u") is ErrorCode.none
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(7, topic="t") is ErrorCode.none
            assert await old.delete_offset("t") is ErrorCode.not_coordinator
            assert await new.fetch() == 7


async def test_a_zombie_does_not_say_that_a_group_is_deleted_that_it_has_forgotten(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5) is ErrorCode.none
        assert await old.delete_offset() is ErrorCode.none
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(7) is ErrorCode.none
            deleted = await old.calls.DeleteGroups(pb.DeleteGroupsRequest(group_ids=["g"]))
            assert [each.error_code for each in deleted.groups] == [ErrorCode.not_coordinator]
            assert await new.fetch() == 7


async def test_a_zombie_does_not_say_that_a_topic_is_read(log: LogInMemory) -> None:
    old = Node("a", log)
    old.see("a", 0, topics=("t",))
    async with running(old):
        assert (await old.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))).error_code == ErrorCode.none
        log.epochs[0] = 1
        assert await old.delete_offset("t") is ErrorCode.not_coordinator


EPOCH = 2
"""Of the first member of a new group: the group is made in the first one."""


async def test_a_zombie_refuses_no_member_that_it_has_not_heard_of(log: LogInMemory) -> None:
    topics = [pb.OffsetCommitTopic(name="t", partitions=[pb.OffsetCommitPartition(partition=0)])]
    commit = pb.OffsetCommitRequest(
        group_id="g",
        member_id="m",
        generation_id=EPOCH,
        knows_member_epochs=True,
        retention_time_ms=-1,
        topics=topics,
    )
    txn_commit = pb.TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=7, generation_id=EPOCH, member_id="m", topics=topics
    )
    deletion = pb.DeleteGroupsRequest(group_ids=["g"])
    leaving = pb.LeaveGroupRequest(group_id="g", members=[pb.LeavingMember(member_id="m")])
    for ask in (
        lambda node: node.calls.ConsumerGroupHeartbeat(newer_heartbeat(EPOCH)),
        lambda node: node.calls.OffsetCommit(commit),
        lambda node: node.calls.DeleteGroups(deletion),
        lambda node: node.calls.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)),
        lambda node: node.calls.JoinGroup(static_join("m")),
        lambda node: node.calls.SyncGroup(pb.SyncGroupRequest(group_id="g", member_id="m", generation_id=1)),
        lambda node: node.calls.LeaveGroup(leaving),
        lambda node: node.calls.TxnOffsetCommit(txn_commit),
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
    if getattr(answer, "error_code", 0):
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def a_new_owner_of(log: LogInMemory, ask: Callable[[Node], Awaitable[Any]], old: Node) -> ErrorCode:
    """What `old` answers when another one has taken over, and it has not heard of that."""
    log.epochs[0] = 1
    return _code(await ask(old))


async def test_a_zombie_turns_nobody_away_from_a_group_that_may_have_room_by_now(log: LogInMemory) -> None:
    config = CoordinatorConfig(coordinator_id="a", group_initial_rebalance_delay_ms=0, group_max_size=1)
    old = Node("a", log, config)
    old.see("a")
    async with running(old):
        await old.join()
        code = await a_new_owner_of(log, lambda node: node.calls.JoinGroup(static_join()), old)
        assert code is ErrorCode.not_coordinator


async def test_a_zombie_does_not_fence_who_waits_in_a_group(log: LogInMemory) -> None:
    """A static member waits in JoinGroup, for another one, when its instance is said to have begun again."""
    old = Node("a", log)
    old.see("a")
    async with running(old):
        first = await old.calls.JoinGroup(static_join())
        await old.sync("g", first.member_id, first.generation_id)
        joining = asyncio.create_task(old.join())
        await until(lambda: group_of(old).state is GroupState.PREPARING_REBALANCE)
        again = await old.calls.JoinGroup(static_join(first.member_id))
        await old.sync("g", again.leader, again.generation_id)
        await joining
        third = asyncio.create_task(old.join())
        await until(lambda: group_of(old).state is GroupState.PREPARING_REBALANCE)
        waits = asyncio.create_task(old.calls.JoinGroup(static_join(first.member_id)))
        await until(lambda: first.member_id in group_of(old).joining)
        log.epochs[0] = 1
        began_again = asyncio.create_task(old.calls.JoinGroup(static_join()))
        assert _code(await waits) is ErrorCode.not_coordinator
        assert {_code(await each) for each in (third, began_again)} == {ErrorCode.not_coordinator}


async def test_a_zombie_gives_up_nobody_who_waits_in_a_group(log: LogInMemory) -> None:
    """When it goes on, all the times are over that it was to give."""
    config = CoordinatorConfig(
        coordinator_id="a", group_initial_rebalance_delay_ms=0, group_new_member_join_timeout_ms=1_000
    )
    old = Node("a", log, config)
    old.see("a")
    async with running(old):
        first = await old.join()
        await old.sync("g", first.member_id, first.generation_id)
        waits = asyncio.create_task(old.join())
        await until(lambda: group_of(old).state is GroupState.PREPARING_REBALANCE)
        log.epochs[0] = 1
        old.clock.advance(2_000)
        await old.coordinator.partitions.on_time()
        assert _code(await waits) is ErrorCode.not_coordinator


def group_of(node: Node) -> Group:
    (runtime,) = node.coordinator.partitions.runtimes()
    return runtime.shard.groups["g"]


async def test_a_zombie_begins_no_generation(log: LogInMemory) -> None:
    """The owner has one of the same number, with more members: what this one's leader shares out would count there."""
    old, new = Node("a", log), Node("b", log)
    old.see("a")
    async with running(old):
        first = await old.join()
        await old.sync("g", first.member_id, first.generation_id)
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            await until_writing(new)
            await new.join(group="another")  # takes the first of the ids, which are the same at both
            other = asyncio.ensure_future(new.join())
            await until(lambda: group_of(new).state is GroupState.PREPARING_REBALANCE)
            joined = await new.join(first.member_id)  # and the answer is lost
            assert (joined.leader, joined.generation_id) == (first.member_id, 2)
            again = await old.join(first.member_id)
            assert again.error_code == ErrorCode.not_coordinator
            assert (await other).generation_id == 2


async def test_a_zombie_refuses_no_classic_member_of_a_newer_group(log: LogInMemory) -> None:
    for ask in (
        lambda node: node.calls.JoinGroup(static_join("stranger")),
        lambda node: node.calls.SyncGroup(pb.SyncGroupRequest(group_id="g", member_id="s", generation_id=1)),
        lambda node: node.calls.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="s", generation_id=1)),
    ):
        log = LogInMemory()
        old = Node("a", log)
        old.see("a", topics=("t",))
        async with running(old):
            joined = await old.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
            assert joined.error_code == ErrorCode.none
            assert await a_new_owner_of(log, ask, old) is ErrorCode.not_coordinator


async def test_a_zombie_hands_out_no_assignment(log: LogInMemory) -> None:
    """The member may have been given up, or have given something up, and what it read is with another one."""
    for ask in (
        lambda node, joined: node.sync("g", joined.member_id, joined.generation_id),
        lambda node, joined: node.join(joined.member_id),
        lambda node, _: node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0, group_id="newer")),
        lambda node, _: node.calls.ConsumerGroupHeartbeat(newer_heartbeat(EPOCH, group_id="newer")),
        lambda node, _: node.calls.ConsumerGroupHeartbeat(newer_heartbeat(-1, group_id="newer")),
    ):
        log = LogInMemory()
        old = Node("a", log)
        old.see("a", topics=("t",))
        async with running(old):
            joined = await old.join()
            answer = await old.sync("g", joined.member_id, joined.generation_id)
            assert answer.error_code == ErrorCode.none
            newer = await old.calls.ConsumerGroupHeartbeat(newer_heartbeat(0, group_id="newer"))
            assert (newer.error_code, newer.member_epoch) == (ErrorCode.none, EPOCH)
            log.epochs[0] = 1
            assert (await ask(old, joined)).error_code == ErrorCode.not_coordinator


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
