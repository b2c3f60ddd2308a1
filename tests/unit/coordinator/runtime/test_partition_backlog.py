"""What waits for a log takes a bounded amount of memory, and costs nobody's membership."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, newer_heartbeat, running, until_writing
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


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


@pytest.mark.parametrize("fails_with", [ErrorCode.kafka_storage_error, ErrorCode.not_coordinator])
async def test_answers_that_were_given_up_take_none(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch, fails_with: ErrorCode
) -> None:
    """The log takes nothing for a while, or begins again: nobody waits any more."""
    monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_ANSWERS_BYTES_MAX", 100)
    for pause in ("LOAD_RETRY_MS_MIN", "APPEND_RETRY_MS_MIN", "APPEND_RETRY_MS_MAX"):
        monkeypatch.setattr(f"barnabas.coordinator.limits.{pause}", 0)
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        for _ in range(10):
            log.fail_with = fails_with
            assert await node.fetch(stable=True) in (
                ErrorCode.coordinator_load_in_progress,
                ErrorCode.not_coordinator,
            )
            log.fail_with = None
            await until_writing(node)
            assert await node.fetch(stable=True) == 5


async def test_a_member_is_heard_although_much_waits(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session would run out while it is told that all is well."""
    monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_ANSWERS_BYTES_MAX", 1)
    node = Node("a", log)
    node.see("a")
    async with running(node):
        joined = await node.join()
        await node.sync("g", joined.member_id, joined.generation_id)
        await until_writing(node)
        log.gate = asyncio.Event()
        fetch = asyncio.create_task(node.fetch(stable=True))
        await asyncio.sleep(0)
        assert await node.fetch(group="another") is ErrorCode.coordinator_load_in_progress, "too much waits"
        beats = 0
        while beats < 8:
            node.clock.advance(4_000)
            await node.coordinator.partitions.on_time()
            assert await node.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.none
            beats += 1
        log.gate.set()
        await fetch
        assert await node.heartbeat(joined.member_id, joined.generation_id) is ErrorCode.none


async def test_a_member_of_the_newer_protocol_is_heard_although_much_waits(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log that takes two seconds for each append, while readers fill the room again and again."""
    monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_ANSWERS_BYTES_MAX", 1)
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        joined = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
        await until_writing(node)
        beat = pb.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=joined.member_epoch, rebalance_timeout_ms=-1
        )
        for _ in range(30):
            log.gate = asyncio.Event()
            fetch = asyncio.create_task(node.fetch(stable=True))
            await asyncio.sleep(0)
            assert await node.fetch(group="another") is ErrorCode.coordinator_load_in_progress
            node.clock.advance(2_000)
            await node.coordinator.partitions.on_time()
            answer = await node.calls.ConsumerGroupHeartbeat(beat)
            assert answer.error_code == ErrorCode.coordinator_load_in_progress
            log.gate.set()
            await fetch
        assert (await node.calls.ConsumerGroupHeartbeat(beat)).error_code == ErrorCode.none


async def test_a_member_of_the_newer_protocol_is_heard_although_much_is_to_be_written(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wants may be much to write: it is asked to come again, and stays a member."""
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        joined = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
        with monkeypatch.context() as patched:
            patched.setattr("barnabas.coordinator.limits.BACKLOG_DECISIONS_MAX", 0)
            for _ in range(30):
                node.clock.advance(2_000)
                await node.coordinator.partitions.on_time()
                answer = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(joined.member_epoch))
                assert answer.error_code == ErrorCode.coordinator_load_in_progress
        stays = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(joined.member_epoch))
        assert stays.error_code == ErrorCode.none


async def test_a_heartbeat_that_brings_nothing_new_writes_nothing(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        joined = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
        member = await node.join(group="classic")
        await node.sync("classic", member.member_id, member.generation_id)
        end = log.ends[0]
        beat = pb.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=joined.member_epoch, rebalance_timeout_ms=-1
        )
        assert (await node.calls.ConsumerGroupHeartbeat(beat)).error_code == ErrorCode.none
        classic = pb.HeartbeatRequest(
            group_id="classic", member_id=member.member_id, generation_id=member.generation_id
        )
        assert (await node.calls.Heartbeat(classic)).error_code == ErrorCode.none
        assert log.ends[0] == end


async def test_heartbeats_that_change_much_wait_in_a_bounded_amount_of_memory(log: LogInMemory) -> None:
    """Members who subscribe to something else each time, while an append is under way."""
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        joined = [await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0, f"m{i}")) for i in range(20)]
        log.gate = asyncio.Event()
        beats = []
        for turn in range(10):
            for number, each in enumerate(joined):
                beat = newer_heartbeat(each.member_epoch, f"m{number}")
                beat.subscribed_topic_names.names.extend(f"{turn}-{topic:0200}" for topic in range(900))
                beats.append(asyncio.ensure_future(node.calls.ConsumerGroupHeartbeat(beat)))
            await asyncio.sleep(0)
        queue = node.coordinator.partitions.runtime(0)._queue
        assert limits.BACKLOG_BYTES_MAX <= queue._waiting_bytes < limits.BACKLOG_BYTES_MAX * 1.1
        log.gate.set()
        await asyncio.gather(*beats)


@pytest.mark.parametrize("limit", ["BACKLOG_ANSWERS_BYTES_MAX", "BACKLOG_DECISIONS_MAX"])
@pytest.mark.parametrize("is_answer_lost", [False, True])
async def test_who_gave_up_what_he_had_to_is_heard_although_much_waits(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch, limit: str, *, is_answer_lost: bool
) -> None:
    """He says so all the time, perhaps under the epoch from before his answer was lost."""
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        first = await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0))
        await node.calls.ConsumerGroupHeartbeat(newer_heartbeat(0, "other"))
        beat = newer_heartbeat(first.member_epoch)
        if is_answer_lost:
            group = node.coordinator.partitions.runtime(0).shard.consumers.groups["g"]
            node.clock.advance(5_000)
            await node.coordinator.partitions.on_time()
            await node.calls.ConsumerGroupHeartbeat(beat)
            assert group.members["m"].epoch > first.member_epoch
        with monkeypatch.context() as patched:
            patched.setattr(f"barnabas.coordinator.limits.{limit}", 0)
            for _ in range(30):
                node.clock.advance(2_000)
                await node.coordinator.partitions.on_time()
                answer = await node.calls.ConsumerGroupHeartbeat(beat)
                assert answer.error_code == ErrorCode.coordinator_load_in_progress
        assert (await node.calls.ConsumerGroupHeartbeat(beat)).error_code == ErrorCode.none


async def test_who_has_left_for_a_while_is_not_heard(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        join, leave = newer_heartbeat(0), newer_heartbeat(-2)
        join.instance_id = leave.instance_id = "i"
        await node.calls.ConsumerGroupHeartbeat(join)
        await node.calls.ConsumerGroupHeartbeat(leave)
        monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_DECISIONS_MAX", 0)
        for _ in range(30):
            node.clock.advance(2_000)
            await node.coordinator.partitions.on_time()
            await node.calls.ConsumerGroupHeartbeat(leave)
        assert not node.coordinator.partitions.runtime(0).shard.consumers.groups["g"].members
