"""One of a node's log directories takes nothing: the others, and the event loop, go on."""

from __future__ import annotations

import asyncio
import errno
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from storage_harness import (
    NOW_MS,
    StorageHarness,
    batch,
    coordinator_record,
    make_cleaning,
    make_upkeep,
    run_node,
    topic_config,
    topic_records,
)

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints import checkpoint_file
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages import storage_pb2 as pb
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import limits
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler

TIMED_OUT = int(ErrorCode.request_timed_out)
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
STORAGE_ERROR = int(ErrorCode.kafka_storage_error)


class Stall:
    """A file system that takes nothing until `thaw`: calls for paths under `root` wait, in whatever thread."""

    def __init__(self) -> None:
        self.root = ""
        self._go = threading.Event()
        self._go.set()
        self.held = 0
        self.loop_thread = threading.get_ident()

    def freeze(self, root: Path) -> None:
        self.root = str(root)
        self._go.clear()

    def thaw(self) -> None:
        self._go.set()

    def pass_through(self, path: str) -> None:
        if self._go.is_set() or not path.startswith(self.root):
            return
        assert threading.get_ident() != self.loop_thread, f"the event loop waits for {path}"
        self.held += 1
        assert self._go.wait(20)


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    made = Stall()

    def patch(owner: Any, name: str, path_of: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            if not options.get("nowait"):
                made.pass_through(path_of(*args))
            return real(*args, **options)

        monkeypatch.setattr(owner, name, staticmethod(call) if owner is SystemFiles else call)

    for name in ("write", "sync", "read"):
        patch(SegmentFile, name, lambda file, *_: file.path)
    patch(checkpoint_file, "write_atomically", lambda _, path, *__: path)
    patch(SystemFiles, "statvfs", str)
    yield made
    made.thaw()


@pytest.fixture
async def node(tmp_path: Path, stall: Stall) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s", [tmp_path / "b"]) as harness:
        yield harness
        stall.thaw()


class Two:
    """A topic with one partition in each directory: `ill` in the one that stalls, `well` in the other."""

    def __init__(self, node: StorageHarness, topic: uuid.UUID, ill: int) -> None:
        self.node = node
        self.topic = topic
        self.ill, self.well = ill, 1 - ill
        lane = node.replica(topic, ill).lane
        assert lane is not None
        self.lane = lane
        self.directory = Path(lane.path)


@pytest.fixture
async def two(node: StorageHarness) -> Two:
    topic = await node.create_topic(partitions=2)
    lanes = [node.replica(topic, index).lane for index in (0, 1)]
    assert lanes[0] is not lanes[1]
    for index in (0, 1):
        assert (await node.append(topic, batch(b"first"), index=index)).base_offset == 0
    return Two(node, topic, 0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def codes(results: Sequence[pb.AppendResult]) -> list[int]:
    return [result.partitions[0].error_code for result in results]


async def test_the_other_directory_goes_on(two: Two, stall: Stall) -> None:
    node = two.node
    stall.freeze(two.directory)
    held = node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    for offset in range(1, 20):
        result = await node.append(two.topic, batch(b"more"), index=two.well)
        assert (result.error_code, result.base_offset) == (0, offset)
    assert (await node.fetch(two.topic, 19, index=two.well)).records
    # What the stalled directory has in memory can be read as well, even under read_committed.
    seen = await node.fetch(two.topic, 0, index=two.ill, isolation_level=1)
    assert (seen.error_code, seen.high_watermark, len(seen.records) > 0) == (0, 1, True)
    assert not held.done()
    stall.thaw()
    result = await held
    assert (result.partitions[0].error_code, result.partitions[0].base_offset) == (0, 1)


async def test_who_waits_is_answered_in_time_and_what_has_not_begun_is_never_written(
    two: Two, stall: Stall
) -> None:
    node = two.node
    stall.freeze(two.directory)
    begun: list[asyncio.Future[pb.AppendResult]] = []
    async with asyncio.timeout(20):
        while not stall.held:  # on a busy machine, one may be over before the thread comes to it
            begun.append(node.send_append(two.topic, batch(b"begun"), index=two.ill, timeout_ms=20))
            await asyncio.wait(begun[-1:])
    later = [
        node.send_append(two.topic, batch(b"never"), index=two.ill, acks=acks, timeout_ms=20)
        for acks in (-1, 1, 0)
    ]
    async with asyncio.timeout(20):
        assert set(codes(await asyncio.gather(*begun, *later))) == {TIMED_OUT}
    assert node.appends.waiting == 0
    stall.thaw()
    # The one that had begun landed, the others did not.
    assert (await node.append(two.topic, batch(b"next"), index=two.ill)).base_offset == 2
    assert two.lane.waiting_bytes == 0
    replica = node.replica(two.topic, two.ill)
    assert (replica.high_watermark, replica.counts.messages_in) == (3, 4)


async def test_the_order_sent_is_kept_through_a_stall(two: Two, stall: Stall) -> None:
    node = two.node
    stall.freeze(two.directory)
    answered: list[int] = []
    futures = []
    for number in range(30):
        numbered = batch(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
        futures.append(node.send_append(two.topic, numbered, index=two.ill, timeout_ms=60_000))
        futures[-1].add_done_callback(lambda done: answered.append(done.result().partitions[0].base_offset))
    again = batch(b"29", producer_id=7, producer_epoch=0, base_sequence=29)
    repeated = node.send_append(two.topic, again, index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    stall.thaw()
    await asyncio.gather(*futures)
    assert answered == list(range(1, 31))
    result = (await repeated).partitions[0]
    assert (result.error_code, result.base_offset) == (0, 30)


async def test_a_waiting_fetch_hears_of_what_a_writer_thread_appended(two: Two, stall: Stall) -> None:
    node = two.node
    waiting = [
        node.connection.fetches.send(
            node.fetch_request(
                two.topic, 1, index=two.ill, max_wait_ms=600_000, min_bytes=100, isolation_level=level
            )
        )
        for level in (0, 1)
    ]
    await node.until_waiting(2)
    stall.freeze(two.directory)
    appends = [node.send_append(two.topic, batch(bytes(100)), index=two.ill) for _ in range(2)]
    await until(lambda: stall.held)
    stall.thaw()
    await asyncio.gather(*appends)
    for fetch in waiting:
        assert len((await node.answer(fetch)).partitions[0].records) > 100


async def test_too_much_that_waits_is_refused(
    two: Two, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = two.node
    monkeypatch.setattr(two.lane, "_bytes_max", 10_000)
    stall.freeze(two.directory)
    large = batch(bytes(6_000))
    held = node.send_append(two.topic, large, index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    refused = await node.append(two.topic, large, index=two.ill)
    assert (refused.error_code, "is slow" in refused.error_message) == (STORAGE_ERROR, True)
    assert (await node.append(two.topic, large, index=two.well)).error_code == 0
    stall.thaw()
    assert codes([await held]) == [0]


async def test_metadata_is_followed_while_an_append_hangs(two: Two, stall: Stall) -> None:
    node, replica = two.node, two.node.replica(two.topic, two.ill)
    stall.freeze(two.directory)
    held = node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    waiting = node.send_append(two.topic, batch(b"waiting"), index=two.ill, timeout_ms=60_000)
    await until(lambda: two.lane._waiting)
    node.apply(topic_config("events", segment_bytes="2000000"))
    node.apply(*topic_records("events", two.topic, 2, leader_epoch=1))
    assert (replica.is_leader, replica.leader_epoch) == (True, 1)
    epoch_one = node.send_append(two.topic, batch(b"newer"), index=two.ill, leader_epoch=1, timeout_ms=60_000)
    stall.thaw()
    results = await asyncio.gather(held, waiting, epoch_one)
    assert [result.partitions[0].base_offset for result in results] == [1, 2, 3]
    assert replica.log is not None
    assert replica.log.config.segment_bytes == 2_000_000
    assert replica.log.end_offset_for_epoch(0) == (0, 3)


async def test_losing_the_leadership_takes_back_what_waits(two: Two, stall: Stall) -> None:
    node, replica = two.node, two.node.replica(two.topic, two.ill)
    stall.freeze(two.directory)
    held = node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    waiting = node.send_append(two.topic, batch(b"waiting"), index=two.ill, timeout_ms=60_000)
    await until(lambda: two.lane._waiting)
    node.apply(*topic_records("events", two.topic, 2, leader=2, leader_epoch=1, replicas=(1, 2)))
    assert codes([await waiting]) == [NOT_LEADER]
    stall.thaw()
    assert codes([await held]) == [NOT_LEADER]
    assert replica.log is not None
    assert replica.log.log_end_offset == 2


async def test_a_coordinator_that_lost_the_partition_while_it_waited_does_not_write(
    two: Two, stall: Stall
) -> None:
    node = two.node
    node.apply(coordinator_record("c1", "process 1"))
    owned: dict[str, Any] = {"internal": True, "coordinator_id": "c1", "coordinator_epoch": 4}
    offsets = await node.create_topic("__consumer_offsets", 2, **owned)
    (index,) = [each for each in (0, 1) if node.replica(offsets, each).lane is two.lane]
    stall.freeze(two.directory)
    held = node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    waiting = node.send_append(
        offsets,
        batch(b"stale"),
        index=index,
        coordinator=("c1", "process 1"),
        coordinator_epoch=4,
        timeout_ms=60_000,
    )
    await until(lambda: two.lane._waiting)
    given = owned | {"coordinator_id": "c2", "coordinator_epoch": 5}
    node.apply(*topic_records("__consumer_offsets", offsets, 2, **given))
    stall.thaw()
    assert codes(await asyncio.gather(held, waiting)) == [0, int(ErrorCode.not_coordinator)]


async def test_a_topic_is_deleted_and_created_again_while_its_append_hangs(two: Two, stall: Stall) -> None:
    node = two.node
    stall.freeze(two.directory)
    held = node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000)
    await until(lambda: stall.held)
    second = uuid.uuid4()
    node.snapshot(*topic_records("events", second, 2))
    await until(lambda: not node.replica(second, two.well).is_opening)
    assert (await node.append(second, batch(b"new"), index=two.well)).base_offset == 0
    stall.thaw()
    assert codes([await held]) == [int(ErrorCode.unknown_topic_or_partition)]
    await node.until_open()
    assert (await node.append(second, batch(b"new"), index=two.ill)).base_offset == 0
    assert node.replica(second, two.ill).lane is two.lane


async def test_a_fetch_of_a_cold_stalled_log_gives_what_the_others_have(
    two: Two, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, read = two.node, SegmentFile.read
    monkeypatch.setattr(limits, "COLD_READ_MS_MAX", 20)

    def cold(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> bytes:
        if nowait and file.path.startswith(str(two.directory)):
            raise BlockingIOError
        return read(file, position, length)

    monkeypatch.setattr(SegmentFile, "read", cold)
    stall.freeze(two.directory)
    for _ in range(limits.READ_THREADS + 3):
        request = node.fetch_request(two.topic, 0, index=two.ill, max_wait_ms=60_000)
        request.partitions.add().CopyFrom(node.fetch_request(two.topic, 0, index=two.well).partitions[0])
        ill, well = (await node.answer(node.connection.fetches.send(request))).partitions
        assert (ill.error_code, ill.high_watermark, ill.records) == (0, 1, b"")
        assert well.records
    assert two.lane.late_reads == limits.READ_THREADS
    stall.thaw()
    await until(lambda: not two.lane.late_reads)
    assert (await node.fetch(two.topic, 0, index=two.ill)).records


async def test_a_fetch_that_waits_for_more_gets_what_comes_back_late(
    two: Two, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, read, is_cold = two.node, SegmentFile.read, True
    monkeypatch.setattr(limits, "COLD_READ_MS_MAX", 20)

    def cold(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> bytes:
        if nowait and is_cold and file.path.startswith(str(two.directory)):
            raise BlockingIOError
        return read(file, position, length)

    monkeypatch.setattr(SegmentFile, "read", cold)
    stall.freeze(two.directory)
    waiting = node.connection.fetches.send(
        node.fetch_request(two.topic, 0, index=two.ill, max_wait_ms=600_000)
    )
    await node.until_waiting(1)
    is_cold = False
    stall.thaw()
    assert (await node.answer(waiting)).partitions[0].records


async def test_what_a_coordinator_reads_is_never_empty_for_being_late(
    two: Two, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, read = two.node, SegmentFile.read
    monkeypatch.setattr(limits, "COLD_READ_MS_MAX", 20)

    def cold(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> bytes:
        if nowait:
            raise BlockingIOError
        return read(file, position, length)

    monkeypatch.setattr(SegmentFile, "read", cold)
    inside = GrpcNetwork().connect_storage(node.address, reads_for_clients=False)
    stall.freeze(two.directory)
    for _ in range(limits.READ_THREADS + 2):  # late ones, and those for which no thread is left
        request = node.fetch_request(two.topic, 0, index=two.ill, max_wait_ms=60_000)
        (ill,) = (await node.answer(inside.fetches.send(request))).partitions
        assert (ill.error_code, ill.high_watermark, ill.records) == (TIMED_OUT, -1, b"")
    stall.thaw()
    await until(lambda: not two.lane.late_reads)
    request = node.fetch_request(two.topic, 0, index=two.ill, max_wait_ms=60_000)
    assert (await node.answer(inside.fetches.send(request))).partitions[0].records
    await inside.close()


async def test_look_ups_fail_for_the_stalled_directory_alone(
    two: Two, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = two.node
    wait = two.lane.run

    async def impatient(pool: Any, work: Callable[[], Any]) -> Any:
        return await wait(pool, work, wait_ms=20)

    monkeypatch.setattr(two.lane, "run", impatient)
    stall.freeze(two.directory)
    listed = await ListOffsetsHandler(node.replicas).handle(
        pb.ListOffsetsRequest(
            partitions=[
                pb.ListOffsetsPartition(
                    topic_id=two.topic.bytes, partition=index, current_leader_epoch=-1, timestamp_ms=NOW_MS
                )
                for index in (two.ill, two.well)
            ]
        )
    )
    assert [(each.error_code, each.offset) for each in listed.results] == [(STORAGE_ERROR, -1), (0, 0)]
    described = await DescribeLogDirsHandler(node.replicas, node.lanes, node.files).handle(
        pb.DescribeLogDirsRequest(all_partitions=True)
    )
    assert [each.error_code for each in described.log_dirs] == [STORAGE_ERROR, 0]
    monkeypatch.setattr(two.lane, "run", wait)  # it needs memory alone, but its thread may come late to it
    deleted = await DeleteRecordsHandler(node.replicas).handle(
        pb.DeleteRecordsRequest(
            partitions=[
                pb.DeleteRecordsPartition(topic_id=two.topic.bytes, partition=index, before_offset=1)
                for index in (two.ill, two.well)
            ]
        )
    )
    assert [each.error_code for each in deleted.results] == [0, 0]


async def test_upkeep_syncs_and_new_topics_of_the_other_directory_go_on(two: Two, stall: Stall) -> None:
    node = two.node
    node.apply(topic_config("events", flush_messages="1"))
    stall.freeze(two.directory)
    held = [node.send_append(two.topic, batch(b"held"), index=two.ill, timeout_ms=60_000) for _ in range(9)]
    await until(lambda: stall.held)
    upkeep = asyncio.ensure_future(make_upkeep(node).write_high_watermarks())
    cleaning = asyncio.ensure_future(make_cleaning(node).clean_dirtiest())
    written = Path(node.lanes[str(node.replica(two.topic, two.well).lane.path)].path)  # type: ignore[union-attr]
    # acks=all under flush.messages: the sync of the other directory is waited for.
    assert (await node.append(two.topic, batch(b"synced"), index=two.well)).error_code == 0
    await until(lambda: (written / checkpoint_file.HIGH_WATERMARK_FILE).exists())
    two.lane._began_at -= limits.STALLED_SECONDS + 1
    new = await node.create_topic("new", partitions=4)
    assert {node.replica(new, index).lane for index in range(4)} == {node.replica(two.topic, two.well).lane}
    assert not upkeep.done()
    stall.thaw()
    assert set(codes(await asyncio.gather(*held))) == {0}
    await asyncio.gather(upkeep, cleaning)


async def test_a_full_directory_refuses_reads_on_and_takes_appends_when_there_is_room(
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, write = two.node, SegmentFile.write

    def full(file: SegmentFile, *args: Any) -> None:
        if file.path.startswith(str(two.directory)):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", full)
        refused = [await node.append(two.topic, batch(b"b"), index=two.ill) for _ in range(5)]
        assert {each.error_code for each in refused} == {STORAGE_ERROR}
        assert (await node.fetch(two.topic, 0, index=two.ill)).records
        assert (await node.append(two.topic, batch(b"b"), index=two.well)).base_offset == 1
    lines = [line for line in caplog.records if line.message == "cannot append: the disk refuses"]
    assert len(lines) == 1
    assert (await node.append(two.topic, batch(b"c"), index=two.ill)).base_offset == 1
