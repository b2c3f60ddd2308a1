"""Loading, committing, failing and moving, against a log in memory that behaves as storage nodes do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from barnabas.coordinator.codec import decode_batch, encode_batches, encode_record
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.coordinator import Coordinator
from barnabas.coordinator.core.records import CoordinatorRecord, OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.metrics import CoordinatorMetrics
from barnabas.coordinator.servicer import CoordinatorServicer
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage, partition_key, topic_key
from barnabas.records.batch import iterate_headers
from barnabas.records.record import encode_batch
from barnabas.rpc.v1 import coordinator_pb2 as pb
from barnabas.rpc.v1.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord

TOPIC_ID = b"o" * 16


class LogInMemory:
    """Fakes the storage nodes: one log a partition, each with a leader epoch, and failures on demand."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.epochs: dict[int, int] = {}
        self.appends = 0
        self.gate: asyncio.Event | None = None
        self.fail_with: ErrorCode | None = None
        self.lose_answer = False

    async def append(self, partition: int, leader_epoch: int, records: bytes) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.fail_with is not None:
            raise KafkaError(self.fail_with)
        if leader_epoch != self.epochs.get(partition, 0):
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        self.appends += 1
        log = self.batches.setdefault(partition, [])
        for position, header in iterate_headers(records):
            log.append(records[position : position + header.size_in_bytes])
        if self.lose_answer:
            self.lose_answer = False
            raise KafkaError(ErrorCode.coordinator_not_available)
        return len(log) - 1

    async def read(self, partition: int, leader_epoch: int, end_offset: int) -> AsyncIterator[bytes]:
        if leader_epoch != self.epochs.get(partition, 0):
            raise KafkaError(ErrorCode.fenced_leader_epoch)
        for batch in list(self.batches.get(partition, [])):
            await asyncio.sleep(0)
            yield batch

    def records(self, partition: int = 0) -> list[CoordinatorRecord]:
        """All but the tombstones that mark a loading."""
        records = [
            record for batch in self.batches.get(partition, []) for record in decode_batch(memoryview(batch))
        ]
        return [record for record in records if record.group_id]


class Node:
    """One coordinator process."""

    def __init__(self, name: str, log: LogInMemory, config: CoordinatorConfig | None = None) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        config = config or CoordinatorConfig(coordinator_id=name, group_initial_rebalance_delay_ms=0)
        self.coordinator = Coordinator(config, self.clock, log, CoordinatorMetrics(self.registry))
        self.calls = CoordinatorServicer(self.coordinator)
        self.image = MetadataImage()

    def see(self, owner: str, epoch: int = 0, partitions: int = 1, *, topics: tuple[str, ...] = ()) -> None:
        """Receive the metadata in which `owner` coordinates everything under leader epoch `epoch`."""
        records = [
            MetadataRecord(
                key=partition_key(TOPIC_ID, index),
                partition=PartitionRecord(
                    topic_id=TOPIC_ID, partition=index, leader_epoch=epoch, coordinator_id=owner
                ),
            )
            for index in range(partitions)
        ]
        name = GROUP_METADATA_TOPIC
        topic = TopicRecord(name=name, topic_id=TOPIC_ID, partition_count=partitions, internal=True)
        records.append(MetadataRecord(key=topic_key(name), topic=topic))
        for name in topics:
            records.append(
                MetadataRecord(key=topic_key(name), topic=TopicRecord(name=name, topic_id=name.encode() * 16))
            )
        old, self.image = self.image, MetadataImage().apply(records, self.image.revision + 1)
        self.coordinator.on_image(old, self.image)

    async def commit(self, offset: int, *, generation: int = -1, member_id: str = "") -> ErrorCode:
        partition = pb.OffsetCommitPartition(partition=0, committed_offset=offset, committed_leader_epoch=-1)
        request = pb.OffsetCommitRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            retention_time_ms=-1,
            topics=[pb.OffsetCommitTopic(name="t", partitions=[partition])],
        )
        response = await self.calls.OffsetCommit(request, None)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def fetch(self) -> int | ErrorCode:
        request = pb.OffsetFetchRequest(
            group_id="g", topics=[pb.OffsetFetchTopic(name="t", partitions=[0])], member_epoch=-1
        )
        response = await self.calls.OffsetFetch(request, None)
        if response.error_code:
            return ErrorCode(response.error_code)
        return response.topics[0].partitions[0].committed_offset

    async def join(
        self, member_id: str = "", session: int = 10_000, group: str = "g"
    ) -> pb.JoinGroupResponse:
        request = pb.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[pb.GroupProtocol(name="range")],
        )
        return await self.calls.JoinGroup(request, None)

    async def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = pb.HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
        return ErrorCode((await self.calls.Heartbeat(request, None)).error_code)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


@contextlib.asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(node.coordinator.run()) for node in nodes]
    await until(lambda: all(node.coordinator.is_loaded() for node in nodes))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


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
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.gate = asyncio.Event()
        commits = [asyncio.create_task(node.commit(offset)) for offset in range(20)]
        await asyncio.sleep(0.01)
        before = log.appends
        log.gate.set()
        assert set(await asyncio.gather(*commits)) == {ErrorCode.none}
        assert log.appends - before <= 2
        assert len(log.records()) == 20


async def test_what_is_not_owned_or_not_loaded(log: LogInMemory) -> None:
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=0))
    assert await node.commit(1) is ErrorCode.coordinator_not_available
    assert await node.fetch() is ErrorCode.not_coordinator
    node.see("b")
    assert await node.commit(1) is ErrorCode.not_coordinator
    node.see("a", 1)
    assert await node.commit(1) is ErrorCode.coordinator_load_in_progress
    assert await node.heartbeat("m", 1) is ErrorCode.none
    listed = await node.calls.ListGroups(pb.ListGroupsRequest(), None)
    assert listed.error_code == ErrorCode.coordinator_load_in_progress
    described = await node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]), None)
    assert described.groups[0].error_code == ErrorCode.coordinator_load_in_progress


async def test_requests_wait_for_the_first_load(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    early = [asyncio.create_task(node.commit(1)), asyncio.create_task(node.fetch())]
    listing = asyncio.create_task(node.calls.ListGroups(pb.ListGroupsRequest(), None))
    described = asyncio.create_task(
        node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]), None)
    )
    await asyncio.sleep(0)
    assert not any(task.done() for task in (*early, listing, described))
    async with running(node):
        assert await early[0] is ErrorCode.none
        assert await early[1] in (-1, 1)
        assert (await listing).error_code == ErrorCode.none
        assert (await described).groups[0].error_code in (ErrorCode.none, ErrorCode.group_id_not_found)


async def test_who_waits_for_the_first_load_hears_that_the_partition_went_elsewhere(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    early = asyncio.create_task(node.commit(1))
    await asyncio.sleep(0)
    node.see("b", 1)
    assert await early is ErrorCode.not_coordinator


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


async def test_a_failed_write_drops_what_was_decided_since(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.fail_with = ErrorCode.not_enough_replicas
        assert await node.commit(6) is ErrorCode.coordinator_not_available
        assert await node.commit(7) is ErrorCode.coordinator_load_in_progress
        log.fail_with = None
        await until(node.coordinator.is_loaded)
        assert await node.fetch() == 5


async def test_a_write_whose_answer_was_lost_is_found_again(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.lose_answer = True
        assert await node.commit(6) is ErrorCode.coordinator_not_available
        await until(node.coordinator.is_loaded)
        assert await node.fetch() == 6


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
        assert (await old.calls.SyncGroup(sync, None)).assignment == b"x"
        log.epochs[0] = 1
        old.see("b", 1)
    new.see("b", 1)
    async with running(new):
        assert await new.heartbeat(joined.member_id, 1) is ErrorCode.none
        assert await new.commit(3, generation=1, member_id=joined.member_id) is ErrorCode.none
        assert (await new.calls.SyncGroup(sync, None)).assignment == b"x"


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
        node.coordinator.on_time()
        (runtime,) = node.coordinator.runtimes()
        assert runtime.shard.groups["g"].generation == 1


async def test_deadlines_pass_without_requests(log: LogInMemory) -> None:
    config = CoordinatorConfig(coordinator_id="a", group_initial_rebalance_delay_ms=3000)
    node = Node("a", log, config)
    node.see("a")
    async with running(node):
        join = asyncio.create_task(node.join())
        await asyncio.sleep(0.01)
        node.clock.advance(3000)
        node.coordinator.on_time()
        joined = await join
        assert (joined.generation_id, joined.leader) == (1, joined.member_id)
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.none
        node.clock.advance(10_000)
        node.coordinator.on_time()
        assert await node.heartbeat(joined.member_id, 1) is ErrorCode.unknown_member_id


async def test_checks_that_need_no_group(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert (await node.join(group="")).error_code == ErrorCode.invalid_group_id
        assert (await node.join(session=5_999)).error_code == ErrorCode.invalid_session_timeout
        assert (await node.join(session=1_800_001)).error_code == ErrorCode.invalid_session_timeout
        empty = pb.HeartbeatRequest()
        assert (await node.calls.Heartbeat(empty, None)).error_code == ErrorCode.invalid_group_id
        assert (await node.calls.LeaveGroup(pb.LeaveGroupRequest(), None)).error_code == 24
        assert (await node.calls.SyncGroup(pb.SyncGroupRequest(), None)).error_code == 24


async def test_an_unreadable_log_is_not_served(log: LogInMemory) -> None:
    good = encode_batches([OffsetRecord("g", "t", 0, OffsetAndMetadata(5))], 1)
    key, _ = encode_record(OffsetRecord("g", "t", 0, None))
    log.batches[0] = [encode_batch([(1, key, b"\x00\x09", ())])]
    node = Node("a", log)
    node.see("a")
    task = asyncio.create_task(node.coordinator.run())
    await asyncio.sleep(0.01)
    assert await node.fetch() is ErrorCode.coordinator_load_in_progress
    log.batches[0] = [good]
    await until(node.coordinator.is_loaded)
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
        (runtime,) = node.coordinator.runtimes()
        with monkeypatch.context() as patch:
            patch.setattr(runtime.shard, "replay", lambda _: 1 / 0)
            assert (
                await node.commit(6, generation=1, member_id=joined.member_id)
                is ErrorCode.rebalance_in_progress
            )
            node.clock.advance(60_000)
            node.coordinator.on_time()
        assert await node.fetch() is ErrorCode.coordinator_load_in_progress
        await until(node.coordinator.is_loaded)
        assert await node.fetch() == 5


async def test_deleted_topics_take_their_offsets_along(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a", topics=("t",))
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        node.see("a")
        assert await node.fetch() == -1


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
