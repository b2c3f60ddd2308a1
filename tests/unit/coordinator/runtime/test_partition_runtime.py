"""Loading, committing, failing and moving, against a log in memory that behaves as storage nodes do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from coordinator_node import Node, running, until, until_writing
from log_in_memory import LogInMemory
from prometheus_client import generate_latest

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import encode_record
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.record import encode_batch


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MIN", 0)


async def test_an_answer_waits_for_the_commit_and_so_do_later_ones(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.gate = asyncio.Event()
        commit, fetch = asyncio.create_task(node.commit(5)), asyncio.create_task(node.fetch())
        await asyncio.sleep(0.01)
        assert not commit.done()
        assert not fetch.done()
        log.gate.set()
        assert (await commit, await fetch) == (ErrorCode.none, 5)


async def test_decisions_that_wait_leave_in_one_append(log: LogInMemory) -> None:
    """As many as a busy cluster's clients have waiting after a stall: more than the kernel takes pieces at once."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.gate = asyncio.Event()
        commits = [asyncio.create_task(node.commit(offset)) for offset in range(1_000)]
        await until(lambda: log.tries == 2)
        appends, batches = log.appends, len(log.batches[0])
        log.gate.set()
        assert set(await asyncio.gather(*commits)) == {ErrorCode.none}
        assert log.appends - appends <= 2
        assert len(log.batches[0]) - batches <= 2
        assert len(log.records()) == 1_000
        assert log.reads == 1


async def test_what_is_not_owned_or_not_loaded(log: LogInMemory) -> None:
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=0))
    assert await node.commit(1) is ErrorCode.coordinator_not_available
    assert await node.fetch() is ErrorCode.coordinator_load_in_progress
    node.see("b")
    assert await node.commit(1) is ErrorCode.not_coordinator
    node.see("a", 1)
    assert await node.commit(1) is ErrorCode.coordinator_load_in_progress
    assert await node.heartbeat("m", 1) is ErrorCode.none
    listed = await node.calls.ListGroups(pb.ListGroupsRequest())
    assert listed.error_code == ErrorCode.coordinator_load_in_progress
    described = await node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]))
    assert described.groups[0].error_code == ErrorCode.coordinator_load_in_progress


async def test_a_write_whose_answer_was_lost_is_found_again(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.lose_answer = True
        assert await node.commit(6) is ErrorCode.coordinator_load_in_progress
        await until_writing(node)
        assert await node.fetch() == 6
        assert await node.commit(7) is ErrorCode.none


async def test_an_election_does_not_disturb_the_groups(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", 3)
    log.epochs[0] = 3
    async with running(node):
        joined = await node.join()
        reads = log.reads
        node.see("a", 3, leader_epoch=9)
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.none
        assert (node.coordinator.partitions.is_loaded(), log.reads) == (True, reads)


async def test_members_survive_a_move(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        joined = await old.join()
        sync = pb.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            assignments=[pb.SyncGroupAssignment(member_id=joined.member_id, assignment=b"x")],
        )
        assert (await old.calls.SyncGroup(sync)).assignment == b"x"
        log.epochs[0] = 1
        old.see("b", 1)
    new.see("b", 1)
    async with running(new):
        assert await new.heartbeat(joined.member_id, 1) is ErrorCode.none
        assert await new.commit(3, generation=1, member_id=joined.member_id) is ErrorCode.none
        assert (await new.calls.SyncGroup(sync)).assignment == b"x"


async def test_those_who_wait_are_sent_on_when_the_partition_moves(log: LogInMemory) -> None:
    config = CoordinatorConfig(coordinator_id="a", group_initial_rebalance_delay_ms=3000)
    node = Node("a", log, config)
    node.see("a")
    async with running(node):
        join = asyncio.create_task(node.join())
        await asyncio.sleep(0.01)
        node.see("b", 1)
        assert (await join).error_code == ErrorCode.not_coordinator


async def test_a_caller_that_gives_up_is_forgotten(log: LogInMemory) -> None:
    config = CoordinatorConfig(coordinator_id="a", group_initial_rebalance_delay_ms=3000)
    node = Node("a", log, config)
    node.see("a")
    async with running(node):
        join = asyncio.create_task(node.join())
        await asyncio.sleep(0.01)
        join.cancel()
        with pytest.raises(asyncio.CancelledError):
            await join
        node.clock.advance(3000)
        await node.coordinator.partitions.on_time()
        (runtime,) = node.coordinator.partitions.runtimes()
        assert runtime.shard.groups["g"].generation == 1


async def test_deadlines_pass_without_requests(log: LogInMemory) -> None:
    config = CoordinatorConfig(coordinator_id="a", group_initial_rebalance_delay_ms=3000)
    node = Node("a", log, config)
    node.see("a")
    async with running(node):
        join = asyncio.create_task(node.join())
        await asyncio.sleep(0.01)
        node.clock.advance(3000)
        await node.coordinator.partitions.on_time()
        joined = await join
        assert (joined.generation_id, joined.leader) == (1, joined.member_id)
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.none
        node.clock.advance(10_000)
        await node.coordinator.partitions.on_time()
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.unknown_member_id


async def test_checks_that_need_no_group(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert (await node.join(group="")).error_code == ErrorCode.invalid_group_id
        assert (await node.join(session=5_999)).error_code == ErrorCode.invalid_session_timeout
        assert (await node.join(session=1_800_001)).error_code == ErrorCode.invalid_session_timeout
        empty = pb.HeartbeatRequest()
        assert (await node.calls.Heartbeat(empty)).error_code == ErrorCode.invalid_group_id
        assert (await node.calls.LeaveGroup(pb.LeaveGroupRequest())).error_code == 24
        assert (await node.calls.SyncGroup(pb.SyncGroupRequest())).error_code == 24


def of_a_newer_version() -> bytes:
    key, _ = encode_record(OffsetRecord("g", "t", 0, None))
    return encode_batch([(1, key, b"\x00\x09", ())])


def rotten() -> bytes:
    """One bit of the committed offset has rotted on a disk, and the records can still be read."""
    batch = bytearray(
        encode_batch([(1, *encode_record(OffsetRecord("g", "t", 0, OffsetAndMetadata(5))), ())])
    )
    at = batch.index((5).to_bytes(8, "big"), HEADER_SIZE)
    batch[at + 7] ^= 1
    return bytes(batch)


@pytest.mark.parametrize("make_batch", [of_a_newer_version, rotten])
async def test_an_unreadable_log_is_not_served(log: LogInMemory, make_batch: Callable[[], bytes]) -> None:
    good = encode_batch([(1, *encode_record(OffsetRecord("g", "t", 0, OffsetAndMetadata(5))), ())])
    log.batches[0] = [make_batch()]
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=60_000))
    node.see("a")
    task = asyncio.create_task(node.coordinator.partitions.run())
    async with asyncio.timeout(10):
        assert await node.fetch() is ErrorCode.coordinator_load_in_progress
    log.batches[0] = [good]
    await until(node.coordinator.partitions.is_loaded)
    assert await node.fetch() == 5
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_bug_costs_a_reload_and_not_the_process(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        joined = await node.join()
        (runtime,) = node.coordinator.partitions.runtimes()
        with monkeypatch.context() as patch:
            patch.setattr(runtime.shard, "replay", lambda _: 1 / 0)
            assert (
                await node.commit(6, generation=1, member_id=joined.member_id)
                is ErrorCode.rebalance_in_progress
            )
            node.clock.advance(60_000)
            await node.coordinator.partitions.on_time()
        assert await node.fetch() is ErrorCode.coordinator_load_in_progress
        await until(node.coordinator.partitions.is_loaded)
        assert await node.fetch() == 5


async def test_texts_that_no_record_can_have_are_refused(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    long = "x" * 32_768
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        for fields in (
            {"member_id": long},
            {"group_instance_id": long},
            {"protocol_type": long},
            {"protocols": [pb.GroupProtocol(name="range"), pb.GroupProtocol(name=long)]},
        ):
            request = pb.JoinGroupRequest(group_id="g", session_timeout_ms=10_000, **fields)
            assert (await node.calls.JoinGroup(request)).error_code == ErrorCode.invalid_request
        assert (await node.join(group="\u20ac" * 10_923)).error_code == ErrorCode.invalid_group_id
        assert await node.commit(6, group=long) is ErrorCode.invalid_group_id
        assert await node.commit(6, metadata=long) is ErrorCode.offset_metadata_too_large
        assert await node.fetch() == 5
        assert log.reads == 1


async def test_a_decision_that_cannot_be_written_fails_alone(log: LogInMemory) -> None:
    """The runtime's own guard: these requests come past the checks of the handlers."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        first = await node.join(group="first")
        second = await node.join(group="second")
        (runtime,) = node.coordinator.partitions.runtimes()
        assert await node.commit(5) is ErrorCode.none
        assert await node.commit(6, topic="x" * 40_000) is ErrorCode.unknown_server_error
        assert await node.commit(7) is ErrorCode.none
        assert (await node.sync("first", first.member_id)).error_code == ErrorCode.none

        runtime.shard.groups["second"].protocol_type = "x" * 40_000
        assert (await node.sync("second", second.member_id)).error_code == ErrorCode.unknown_server_error
        assert "second" not in runtime.shard.groups
        assert (await node.join(group="second")).error_code == ErrorCode.none
        assert await node.heartbeat(first.member_id, 1, group="first") is ErrorCode.none

        runtime.shard.groups["first"].protocol_type = "x" * 40_000
        leave = pb.LeaveGroupRequest(group_id="first", members=[pb.LeavingMember(member_id=first.member_id)])
        left = await node.calls.LeaveGroup(leave)
        assert left.error_code == ErrorCode.unknown_server_error
        assert await node.heartbeat(first.member_id, 1, group="first") is ErrorCode.none
        assert runtime.shard.groups["first"].protocol_type == "consumer"
        assert (await node.fetch(), node.state(), log.reads) == (7, PartitionState.SERVING, 1)


async def test_who_waits_in_a_group_that_cannot_be_written_is_told(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        one = await node.join()
        other = asyncio.create_task(node.join())
        await asyncio.sleep(0)
        again = await node.join(one.member_id)
        member_ids = [again.member_id, (await other).member_id]
        waits = asyncio.create_task(node.sync("g", member_ids[1], 2))
        await asyncio.sleep(0)
        (runtime,) = node.coordinator.partitions.runtimes()
        runtime.shard.groups["g"].protocol_type = "x" * 40_000
        assert (await node.sync("g", member_ids[0], 2)).error_code == ErrorCode.unknown_server_error
        assert (await waits).error_code == ErrorCode.unknown_server_error
        assert node.state() is PartitionState.SERVING
        node.clock.advance(60_000)
        await node.coordinator.partitions.on_time()
        assert log.reads == 1


async def test_deleted_topics_take_their_offsets_along(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        node.see("a")
        assert await node.fetch() == 5, "that a topic is absent is no deletion"
        node.see("a", topics=("t",))
        node.see("a", deleted=("t",))
        assert await node.fetch() == -1


async def test_many_offsets_of_deleted_topics_go_a_few_at_a_time(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that deleted 250,000 of them at once sent no heartbeat for so long that it was given up."""
    monkeypatch.setattr("barnabas.coordinator.limits.OFFSETS_DELETED_AT_ONCE", 10)
    node = Node("a", log)
    node.see("a", partitions=3, topics=("t",))
    groups = [f"g{number}" for number in range(50)]
    async with running(node):
        for group in groups:
            assert await node.commit(5, group=group) is ErrorCode.none

        def left() -> list[str]:
            return [each for shard in node.coordinator.partitions.shards() for each in shard.offsets]

        node.see("a", partitions=3, topics=("t",))
        node.see("a", partitions=3, deleted=("t",))
        assert len(left()) == 40
        before, most_at_once = 40, 0
        again = left()[-1]
        assert await node.commit(7, group=again) is ErrorCode.none, "of a new topic of the same name"
        while len(left()) > 1:
            before = len(left())
            await asyncio.sleep(0)
            most_at_once = max(most_at_once, before - len(left()))
        assert 0 < most_at_once <= 10
        for _ in range(10):
            await asyncio.sleep(0)
        assert left() == [again]
        assert await node.fetch(group=again) == 7
        assert await node.fetch(group=next(each for each in groups if each != again)) == -1


async def test_metrics(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", partitions=3)
    async with running(node):
        await node.commit(5)
        text = generate_latest(node.registry).decode()
        assert "kafka_coordinator_group_groupmetadatamanager_numgroups 1.0" in text
        assert "kafka_coordinator_group_groupmetadatamanager_numgroupsempty 1.0" in text
        assert "kafka_coordinator_group_groupmetadatamanager_numoffsets 1.0" in text
        assert "barnabas_coordinator_loaded_partitions 3.0" in text
        assert "barnabas_coordinator_offset_commits_total 1.0" in text


async def test_what_keeps_many_partitions_from_loading_is_told_now_and_then(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    log.fail_with = ErrorCode.coordinator_not_available
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MAX", 0)
    node = Node("a", log)
    node.see("a", partitions=20)
    serving = asyncio.create_task(node.coordinator.partitions.run())
    await until(lambda: log.tries > 200)
    node.clock.advance(1_000)
    await until(lambda: log.tries > 400)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    told = [record for record in caplog.records if record.message == "partition is not served"]
    assert [record.levelname for record in told] == ["INFO", "WARNING"]
    assert {vars(record)["fields"]["topic"] for record in told} == {"__consumer_offsets"}


async def test_the_loop_has_a_turn_between_partitions_that_have_something_to_do(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node("a", log)
    node.see("a", partitions=3)
    turns: list[object] = []

    def on_time(runtime: PartitionRuntime[Any, Any, Any]) -> bool:
        turns.append(runtime.partition)
        return runtime.partition != 1

    monkeypatch.setattr(PartitionRuntime, "on_time", on_time)
    asyncio.get_running_loop().call_soon(turns.append, "others")
    await node.coordinator.partitions.on_time()
    assert turns == [0, "others", 1, 2]


async def test_metadata_that_come_while_it_ends_begin_nothing(log: LogInMemory) -> None:
    """Its subscription is cancelled at the same time, and may have a change to tell in that very turn."""
    node = Node("a", log)
    node.see("a")
    serving = asyncio.create_task(node.coordinator.partitions.run())
    await until_writing(node)
    asyncio.get_running_loop().call_soon(serving.cancel)
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, node.see, "a", 1)
    await asyncio.wait((serving,))
    node.see("a", 2)
    assert serving.cancelled()
    steps = iter([None] * 3)
    node.coordinator.partitions.take_steps(steps)
    assert len(list(steps)) == 2, "they would all be taken in one turn"
