"""A log that stalls, refuses, or answers late: what is served meanwhile, and what stands afterwards."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running, until, until_writing
from log_in_memory import LogInMemory
from prometheus_client import generate_latest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.records import OffsetRecord
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import coordinator_pb2 as pb
from jumping_time import jumping_time

READ_ONLY = PartitionState.READ_ONLY
REFUSED = ErrorCode.coordinator_load_in_progress


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MAX", 0)


def impatient() -> CoordinatorConfig:
    """A coordinator whose requests wait for the log no time to speak of."""
    return CoordinatorConfig(
        coordinator_id="a", group_initial_rebalance_delay_ms=0, offsets_commit_timeout_ms=1
    )


async def stable_member(node: Node) -> str:
    """A group of one, stable in generation 1; returns the member's id."""
    joined = await node.join()
    assert (await sync(node, joined.member_id)).error_code == ErrorCode.none
    return joined.member_id


async def sync(node: Node, member_id: str) -> pb.SyncGroupResponse:
    assignment = pb.SyncGroupAssignment(member_id=member_id, assignment=b"x")
    request = pb.SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member_id, assignments=[assignment]
    )
    return await node.calls.SyncGroup(request)


async def test_nobody_is_told_that_he_is_no_member_while_the_log_takes_no_writes(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        request = pb.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=pb.SubscribedTopics(names=["t"]),
            topic_partitions=pb.OwnedPartitions(),
        )
        assert (await node.calls.ConsumerGroupHeartbeat(request)).error_code == ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6, group="another") is REFUSED
        assert node.state() is READ_ONLY
        beat = pb.HeartbeatRequest(group_id="g", member_id="stranger", generation_id=1)
        assert (await node.calls.Heartbeat(beat)).error_code == ErrorCode.none
        for member_id in ("m", "stranger"):  # the epoch of the one is another by now
            asked = pb.OffsetFetchRequest(group_id="g", all_topics=True, member_id=member_id, member_epoch=7)
            assert (await node.calls.OffsetFetch(asked)).error_code == REFUSED


def committed(log: LogInMemory) -> list[int]:
    return [
        record.value.offset
        for record in log.records()
        if isinstance(record, OffsetRecord) and record.value is not None
    ]


@pytest.mark.parametrize("code", [ErrorCode.kafka_storage_error, ErrorCode.not_enough_replicas])
async def test_what_needs_no_write_is_served_while_the_log_takes_none(
    log: LogInMemory, code: ErrorCode
) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        member = await stable_member(node)
        assert await node.commit(5, generation=1, member_id=member) is ErrorCode.none
        log.fail_with = code
        assert await node.commit(6, generation=1, member_id=member) is REFUSED
        assert node.state() is READ_ONLY
        assert await node.fetch() == 5
        assert await node.heartbeat(member, 1) is ErrorCode.none
        assert await node.heartbeat("stranger", 1) is ErrorCode.none, (
            "nobody can say here that he is none by now"
        )
        listed = await node.calls.ListGroups(pb.ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == ["g"]
        described = await node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]))
        assert [each.member_id for each in described.groups[0].members] == [member]
        assert await node.commit(7, generation=1, member_id=member) is REFUSED
        assert (await node.join(group="other")).error_code == REFUSED
        assert "barnabas_coordinator_read_only_partitions 1.0" in generate_latest(node.registry).decode()

        log.fail_with = None
        await until_writing(node)
        assert log.reads == 1, "nothing was loaded again"
        assert await node.commit(8, generation=1, member_id=member) is ErrorCode.none
        assert await node.fetch() == 8
        # What was under way when the log refused has landed in its place; what was refused outright has not.
        assert committed(log) == [5, 6, 8]


async def test_what_the_log_s_leader_says_of_who_owns_it_counts_for_a_moment(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6) is REFUSED
        log.gate = asyncio.Event()  # and now it hangs
        tries = log.tries
        await until(lambda: log.tries > tries)
        with jumping_time():
            await asyncio.sleep(1.8)
            assert await node.fetch() == 5
            await asyncio.sleep(0.3)
            assert await node.fetch() is REFUSED
        log.gate.set()
        log.gate = None
        await until(lambda: log.tries > tries + 1)
        assert await node.fetch() == 5


async def test_offsets_are_told_for_as_long_as_the_disk_is_full(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MIN", 50)
    monkeypatch.setattr("barnabas.coordinator.limits.APPEND_RETRY_MS_MAX", 1_000)
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6) is REFUSED
        with jumping_time():
            for _ in range(20):
                await asyncio.sleep(0.3)
                assert await node.fetch() == 5


async def test_a_refusal_that_was_read_after_a_freeze_is_no_news(log: LogInMemory) -> None:
    """The log's leader refused at once; meanwhile another one has taken over, and committed."""
    frozen, other = Node("a", log), Node("b", log)
    frozen.see("a")
    async with running(frozen):
        assert await frozen.commit(5) is ErrorCode.none
        log.fail_with, log.refusal_gate = ErrorCode.kafka_storage_error, asyncio.Event()
        committing = asyncio.create_task(frozen.commit(6))
        tries = log.tries
        await until(lambda: log.tries > tries)
        thaw, log.refusal_gate, log.fail_with = log.refusal_gate, None, None
        log.epochs[0] = 1
        other.see("b", 1)
        async with running(other):
            await until_writing(other)
            assert await other.commit(100) is ErrorCode.none
            log.gate = asyncio.Event()
            with jumping_time():
                await asyncio.sleep(20)
                assert await committing is REFUSED
                tries = log.tries
                thaw.set()
                await until(lambda: log.tries > tries)
                assert await frozen.fetch() is REFUSED
            log.gate.set()


async def test_a_refusal_from_before_a_load_that_landed_is_no_news(log: LogInMemory) -> None:
    """The log takes writes since, and so of another one, too."""
    former, node = Node("z", log), Node("a", log, impatient())
    former.see("z")
    async with running(former):
        assert await former.commit(5) is ErrorCode.none
    log.epochs[0], log.fail_with = 1, ErrorCode.not_enough_replicas
    node.see("a", 1)
    async with running(node):
        assert (node.state(), await node.fetch()) == (READ_ONLY, 5)
        log.fail_with = None
        await until_writing(node)
        log.gate = asyncio.Event()
        assert await node.commit(7) is REFUSED
        assert (node.state(), await node.fetch()) == (READ_ONLY, REFUSED)
        log.gate.set()


async def test_a_refusal_from_before_a_write_that_landed_is_no_news(log: LogInMemory) -> None:
    node = Node("a", log, impatient())
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6) is REFUSED
        log.fail_with = None
        await until_writing(node)
        log.gate = asyncio.Event()
        assert await node.commit(7) is REFUSED
        assert (node.state(), await node.fetch()) == (READ_ONLY, REFUSED)
        log.gate.set()


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out])
async def test_who_does_not_lead_the_log_says_nothing_of_its_owner(log: LogInMemory, code: ErrorCode) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6) is REFUSED
        log.fail_with, tries = code, log.tries
        await until(lambda: log.tries > tries + 1)
        assert (node.state(), await node.fetch()) == (READ_ONLY, REFUSED)


async def test_a_log_that_hangs_is_waited_for_no_longer_than_a_commit_may_take(log: LogInMemory) -> None:
    node = Node("a", log, impatient())
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.gate = asyncio.Event()
        waiting = [asyncio.create_task(node.commit(offset)) for offset in (6, 7)]
        reading = asyncio.create_task(node.fetch())
        assert {await commit for commit in waiting} == {REFUSED}
        # Asked while it was not clear yet that the log hangs, so it was to wait for the commits.
        assert await reading is REFUSED
        assert node.state() is READ_ONLY
        assert await node.fetch() is REFUSED, "another one may have taken over"
        log.gate.set()
        await until_writing(node)
        assert await node.commit(8) is ErrorCode.none
        assert committed(log) == [5, 6, 7, 8]
        assert log.reads == 1


async def test_a_heartbeat_waits_for_no_write(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        member = await stable_member(node)
        log.gate = asyncio.Event()
        commit = asyncio.create_task(node.commit(6, generation=1, member_id=member))
        await until(lambda: log.tries == 3)
        assert await node.heartbeat(member, 1) is ErrorCode.none
        assert (node.state(), commit.done()) == (PartitionState.SERVING, False)
        log.gate.set()
        assert await commit is ErrorCode.none


async def test_nobody_s_session_ends_while_that_cannot_be_written(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        member = await stable_member(node)
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.commit(6, generation=1, member_id=member) is REFUSED
        node.clock.advance(3_600_000)
        await node.coordinator.partitions.on_time()
        described = await node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]))
        assert len(described.groups[0].members) == 1
        log.fail_with = None
        await until_writing(node)
        node.clock.advance(9_999)
        await node.coordinator.partitions.on_time()
        assert await node.heartbeat(member, 1) is ErrorCode.none
        node.clock.advance(10_000)
        await node.coordinator.partitions.on_time()
        assert await node.heartbeat(member, 1) is ErrorCode.unknown_member_id


async def test_a_generation_that_cannot_be_written_is_agreed_on_afterwards(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        joined = await node.join()
        log.fail_with = ErrorCode.kafka_storage_error
        assert (await sync(node, joined.member_id)).error_code == ErrorCode.rebalance_in_progress
        assert (await node.join(joined.member_id)).error_code == REFUSED
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.none
        log.fail_with = None
        await until_writing(node)
        again = await node.join(joined.member_id)
        assert again.error_code == ErrorCode.none
        assert again.generation_id == 2


async def test_a_coordinator_that_starts_beside_a_full_disk_serves_what_is_committed(
    log: LogInMemory,
) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a")
    async with running(old):
        member = await stable_member(old)
        assert await old.commit(5, generation=1, member_id=member) is ErrorCode.none
    log.epochs[0] = 1
    log.fail_with = ErrorCode.kafka_storage_error
    new.see("b", 1)
    async with running(new):
        assert new.state() is READ_ONLY
        assert await new.fetch() == 5
        assert await new.heartbeat(member, 1) is ErrorCode.none
        assert await new.commit(6, generation=1, member_id=member) is REFUSED
        reads, tries = log.reads, log.tries
        await until(lambda: log.tries > tries + 3)
        assert log.reads == reads, "what is served already is not read again and again"
        log.fail_with = None
        await until_writing(new)
        assert await new.commit(7, generation=1, member_id=member) is ErrorCode.none
        assert committed(log) == [5, 7]


async def test_a_full_disk_that_was_found_at_the_start_is_asked_as_often_as_any(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what it says of the owner would not count until the next time."""
    for name, ms in (("LOAD_RETRY_MS_MIN", 1), ("LOAD_RETRY_MS_MAX", 60_000), ("APPEND_RETRY_MS_MAX", 1)):
        monkeypatch.setattr(f"barnabas.coordinator.limits.{name}", ms)
    log.fail_with = ErrorCode.not_enough_replicas
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert node.state() is READ_ONLY
        tries = log.tries
        with jumping_time():
            await asyncio.sleep(1)
        assert log.tries > tries + 100


async def test_a_backlog_has_an_end(log: LogInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.BACKLOG_DECISIONS_MAX", 10)
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.gate = asyncio.Event()
        first = asyncio.create_task(node.commit(0))
        await until(lambda: log.tries == 2)  # under way, no longer waiting
        commits = [asyncio.create_task(node.commit(offset)) for offset in range(1, 31)]
        refused = commits[10:]
        assert {await commit for commit in refused} == {REFUSED}
        assert node.state() is PartitionState.SERVING
        log.gate.set()
        assert {await commit for commit in (first, *commits[:10])} == {ErrorCode.none}
        assert committed(log) == list(range(11))


async def test_a_frame_that_went_astray_cannot_land_beside_the_one_sent_again(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.lose_frame = True
        assert await node.commit(6) is ErrorCode.none  # sent again, and landed
        assert await node.commit(4) is ErrorCode.none
        with pytest.raises(KafkaError) as refused:
            log.strays.pop()()
        assert refused.value.code is ErrorCode.offset_out_of_range
        assert committed(log) == [5, 6, 4]
        assert log.reads == 1


async def test_a_frame_that_went_astray_cannot_land_after_the_reload(log: LogInMemory) -> None:
    """Under the same coordinator epoch, and although the log ended where the frame expects when it was sent."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.lose_frame = True
        commit = asyncio.create_task(node.commit(6))
        await until(lambda: bool(log.strays))
        log.fail_with = ErrorCode.unknown_server_error
        assert await commit is ErrorCode.unknown_server_error
        log.fail_with = None
        await until_writing(node)
        assert log.reads == 2
        with pytest.raises(KafkaError) as refused:
            log.strays.pop()()
        assert refused.value.code is ErrorCode.offset_out_of_range
        assert await node.fetch() == 5
        assert await node.commit(7) is ErrorCode.none
        assert committed(log) == [5, 7]
        assert log.reads == 2


async def test_a_frame_that_landed_late_is_read_and_not_overlooked(log: LogInMemory) -> None:
    """It lands before it is sent again: the log has moved, so that it is read anew; reads go on meanwhile."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.lose_answer = True
        commit = asyncio.create_task(node.commit(6))
        assert await commit is REFUSED
        assert await node.fetch() in (REFUSED, 6)
        await until_writing(node)
        assert await node.fetch() == 6
        assert await node.commit(7) is ErrorCode.none
        assert committed(log) == [5, 6, 7]


async def test_a_frame_of_an_earlier_owner_cannot_land(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a")
    async with running(old):
        log.lose_frame = True
        waiting = asyncio.create_task(old.commit(5))
        await until(lambda: bool(log.strays))
        log.epochs[0] = 1
        assert await waiting is ErrorCode.not_coordinator
        new.see("b", 1)
        async with running(new):
            with pytest.raises(KafkaError) as refused:
                log.strays.pop()()
            assert refused.value.code is ErrorCode.not_coordinator
            assert await new.fetch() == -1
