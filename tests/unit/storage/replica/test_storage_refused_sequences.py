"""A batch of an idempotent producer that is new to a partition is given up: nothing behind it may take its place.

In each test `FIRST` is given up for another reason, while `SECOND` is under way already or comes before `FIRST` is sent
again. Were `SECOND` written, `FIRST` sent again would be out of order, which clients take for "it was written before".
"""

from __future__ import annotations

import asyncio
import errno
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from storage_harness import StorageHarness, batch, make_upkeep, run_node, topic_config, topic_records

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, PartitionAppendResult
from barnabas.storage import limits
from barnabas.storage.replica.replica import Replica

OUT_OF_ORDER = int(ErrorCode.out_of_order_sequence_number)
TIMED_OUT = int(ErrorCode.request_timed_out)
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
FENCED = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_TOPIC = int(ErrorCode.unknown_topic_id)
UNKNOWN_PARTITION = int(ErrorCode.unknown_topic_or_partition)
STORAGE_ERROR = int(ErrorCode.kafka_storage_error)

FIRST = batch(b"first" + bytes(2_000), producer_id=7, producer_epoch=0, base_sequence=0)
SECOND = batch(b"second", producer_id=7, producer_epoch=0, base_sequence=1)
EXPIRATION_MS = 86_400_000
"""The default of producer.id.expiration.ms."""

SECOND_OF_NEW_EPOCH = batch(b"second", producer_id=7, producer_epoch=1, base_sequence=0)


def hold_writer(node: StorageHarness, topic: uuid.UUID, go: threading.Event) -> None:
    """The writer thread of the topic's directory has something else to do until `go` is set."""
    lane = node.replica(topic).lane
    assert lane is not None
    lane.submit(lambda: go.wait(20), lambda *_: None)


async def until_queued(replica: Replica) -> None:
    """Wait until an append is on its way to the writer thread."""
    queue = replica.appending._queue
    assert queue is not None
    async with asyncio.timeout(20):
        while not queue.items:
            await asyncio.sleep(0)


def code(answered: AppendResult) -> int:
    return answered.partitions[0].error_code


async def check_order(node: StorageHarness, topic: uuid.UUID, offset: int = 0) -> None:
    """The second is refused until the first has landed; then both are there, in their order."""
    assert (await node.append(topic, SECOND)).error_code == OUT_OF_ORDER
    for number, records in enumerate((FIRST, SECOND)):
        result = await node.append(topic, records)
        assert (result.error_code, result.base_offset) == (0, offset + number)
    stored = (await node.fetch(topic)).records
    assert 0 <= stored.find(b"first") < stored.find(b"second")


async def _check_refused_by_disk(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create_topic()
    write = SegmentFile.write

    def full(file: SegmentFile, parts: Any, *args: Any) -> Any:
        if sum(map(len, parts)) > 1_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, parts, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", full)
        sent = [node.send_append(topic, records) for records in (FIRST, SECOND)]
        assert [code(each) for each in await asyncio.gather(*sent)] == [STORAGE_ERROR, OUT_OF_ORDER]
    await check_order(node, topic)


async def test_refused_by_the_disk(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await _check_refused_by_disk(node, monkeypatch)


async def test_refused_by_the_disk_in_a_writer_thread(
    threaded: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _check_refused_by_disk(threaded, monkeypatch)


async def test_a_new_epoch_of_the_producer_begins_anew(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", full)
        assert (await node.append(topic, FIRST)).error_code == STORAGE_ERROR
    assert (await node.append(topic, SECOND)).error_code == OUT_OF_ORDER
    assert (await node.append(topic, SECOND_OF_NEW_EPOCH)).error_code == 0


async def test_out_of_time_before_it_began(threaded: StorageHarness, go: threading.Event) -> None:
    node = threaded
    topic = await node.create_topic()
    hold_writer(node, topic, go)
    first = node.send_append(topic, FIRST, timeout_ms=20)
    second = node.send_append(topic, SECOND, timeout_ms=60_000)
    assert code(await first) == TIMED_OUT
    go.set()
    assert code(await second) == OUT_OF_ORDER
    await check_order(node, topic)


async def test_too_much_waits_for_the_directory(
    threaded: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = threaded
    topic = await node.create_topic()
    lane = node.replica(topic).lane
    monkeypatch.setattr(lane, "_bytes_max", 1_000)
    hold_writer(node, topic, go)
    held = node.send_append(topic, batch(b"held"), timeout_ms=60_000)
    assert (await node.append(topic, FIRST)).error_code == STORAGE_ERROR
    second = node.send_append(topic, SECOND, timeout_ms=60_000)
    go.set()
    assert [code(each) for each in await asyncio.gather(held, second)] == [0, OUT_OF_ORDER]
    await check_order(node, topic, 1)


async def test_withdrawn_with_the_leadership(threaded: StorageHarness, go: threading.Event) -> None:
    node = threaded
    topic = await node.create_topic()
    replica = node.replica(topic)
    hold_writer(node, topic, go)
    first = node.send_append(topic, FIRST, timeout_ms=60_000)
    await until_queued(replica)
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1))
    assert code(await first) == NOT_LEADER
    go.set()
    node.apply(*topic_records("events", topic, leader_epoch=2))
    await check_order(node, topic)


async def test_not_admitted(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    records = topic_records("events", topic, replicas=(1, 2))
    del records[0].partition.isr[1:]
    node.apply(*records, topic_config("events", min_insync_replicas="2"))
    await node.until_open()
    assert (await node.append(topic, FIRST)).error_code == int(ErrorCode.not_enough_replicas)
    node.apply(topic_config("events", min_insync_replicas="1"))
    await check_order(node, topic)


class _Opening:
    """A topic whose log is being opened until `go` is set."""

    def __init__(self, node: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.topic = node, uuid.uuid4()
        real = PartitionLog.open

        def slow(*args: Any, **options: Any) -> PartitionLog:
            assert go.wait(20)
            return real(*args, **options)

        monkeypatch.setattr(PartitionLog, "open", slow)
        node.apply(*topic_records("events", self.topic))

    def append(self, records: bytes) -> asyncio.Future[PartitionAppendResult]:
        future: asyncio.Future[PartitionAppendResult] = asyncio.get_running_loop().create_future()
        request = AppendRequest(acks=-1, timeout_ms=60_000)
        request.partitions.add(topic_id=self.topic.bytes, partition=0, leader_epoch=-1, records=records)
        self.node.appends.handle(request, lambda result: future.set_result(result.partitions[0]))
        return future


async def test_given_up_while_the_log_is_opened(
    node: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = _Opening(node, go, monkeypatch)
    monkeypatch.setattr(limits, "OPENING_WAIT_MS_MAX", 0)
    first = opening.append(FIRST)
    monkeypatch.setattr(limits, "OPENING_WAIT_MS_MAX", 60_000)
    second = opening.append(SECOND)
    assert (await first).error_code == NOT_LEADER
    go.set()
    assert (await second).error_code == OUT_OF_ORDER
    await check_order(node, opening.topic)


async def test_too_much_waits_for_the_log_to_be_opened(
    node: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = _Opening(node, go, monkeypatch)
    monkeypatch.setattr(limits, "OPENING_WAIT_MS_MAX", 60_000)
    monkeypatch.setattr(limits, "PARKED_BYTES_MAX", 1_000)
    assert (await opening.append(FIRST)).error_code == NOT_LEADER
    second = opening.append(SECOND)
    go.set()
    assert (await second).error_code == OUT_OF_ORDER
    await check_order(node, opening.topic)


async def test_before_the_node_knows_the_topic(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    assert (await node.append(topic, FIRST)).error_code == UNKNOWN_TOPIC
    node.apply(*topic_records("events", topic))
    await check_order(node, topic)


async def test_before_the_node_knows_the_partition(node: StorageHarness) -> None:
    """The topic gets one more; what was refused of it says nothing of the others."""
    topic = await node.create_topic()
    assert (await node.append(topic, FIRST, index=1)).error_code == UNKNOWN_PARTITION
    node.apply(*topic_records("events", topic, 2))
    assert (await node.append(topic, SECOND, index=1)).error_code == OUT_OF_ORDER
    assert (await node.append(topic, SECOND)).error_code == 0


async def test_before_the_partition_is_given_to_the_node(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    node.apply(*topic_records("events", topic, replicas=(2,), leader=2))
    assert (await node.append(topic, FIRST)).error_code == NOT_LEADER
    node.apply(*topic_records("events", topic, leader_epoch=1))
    await check_order(node, topic)


async def test_for_an_append_that_is_acknowledged_at_once(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    await node.append(topic, FIRST)
    node.apply(*topic_records("events", topic))
    await node.until_open()
    replica = node.replica(topic)
    assert replica.lane is not None
    replica.lane.on_append(machine_seconds(), machine_seconds())
    appended = [replica.appending.append_at_once(memoryview(each), -1) for each in (SECOND, FIRST, SECOND)]
    assert [info is not None for info in appended] == [False, True, True]


@pytest.mark.parametrize("refused_while_away", [False, True])
async def test_removed_from_the_node_and_given_back(node: StorageHarness, refused_while_away: bool) -> None:
    """Whether the replica that went had refused it, or nobody was there to."""
    topic = await node.create_topic()
    if not refused_while_away:
        assert (await node.append(topic, FIRST, leader_epoch=-2)).error_code == FENCED
    node.apply(*topic_records("events", topic, replicas=(2,), leader=2, leader_epoch=1))
    if refused_while_away:
        assert (await node.append(topic, FIRST)).error_code == NOT_LEADER
    node.apply(*topic_records("events", topic, leader_epoch=2))
    await check_order(node, topic)


async def test_taken_back_with_its_replica(threaded: StorageHarness, go: threading.Event) -> None:
    """What had not begun when the replica went is refused by that one, and is the next one's to remember."""
    node = threaded
    topic = await node.create_topic()
    hold_writer(node, topic, go)
    replica = node.replica(topic)
    first = node.send_append(topic, FIRST, timeout_ms=60_000)
    await until_queued(replica)
    node.apply(*topic_records("events", topic, replicas=(2,), leader=2, leader_epoch=1))
    assert code(await first) == UNKNOWN_PARTITION
    go.set()
    node.apply(*topic_records("events", topic, leader_epoch=2))
    await check_order(node, topic)


async def test_refused_longer_ago_than_producers_are_known(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = uuid.uuid4()
    assert (await node.append(topic, FIRST)).error_code == UNKNOWN_TOPIC
    monkeypatch.setattr(node.replicas, "broker_value", {"producer.id.expiration.ms": 0}.__getitem__)
    node.apply(*topic_records("events", topic))
    assert (await node.append(topic, SECOND)).error_code == 0


async def test_begun_when_its_replica_went(
    threaded: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a log that is deleted, and was not acknowledged."""
    node = threaded
    topic = await node.create_topic()
    began, write = threading.Event(), SegmentFile.write

    def slow(*args: Any) -> Any:
        began.set()
        assert go.wait(20)
        return write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", slow)
        first = node.send_append(topic, FIRST, timeout_ms=60_000)
        assert await asyncio.to_thread(began.wait, 20)
        node.apply(*topic_records("events", topic, replicas=(2,), leader=2, leader_epoch=1))
        go.set()
        assert code(await first) == UNKNOWN_PARTITION
    node.apply(*topic_records("events", topic, leader_epoch=2))
    await check_order(node, topic)


async def test_written_but_not_replicated_when_its_replica_went(node: StorageHarness) -> None:
    topic = await node.create_topic(replicas=(1, 2))
    first = node.send_append(topic, FIRST, timeout_ms=60_000)
    async with asyncio.timeout(20):
        while not node.replica(topic).counts.appends:
            await asyncio.sleep(0)
    node.apply(*topic_records("events", topic, replicas=(2,), leader=2, leader_epoch=1))
    assert code(await first) == UNKNOWN_PARTITION
    node.apply(*topic_records("events", topic, leader_epoch=2))
    await check_order(node, topic)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("several", [False, True])
async def test_refused_as_too_large_and_sent_again_in_parts(
    tmp_path: Path, *, known: bool, several: bool
) -> None:
    """As Java's client does, which keeps the sequences. Kafka lets nothing pass behind the hole of a producer that it
    knows; of one that it does not know it takes what comes next, and the parts come behind that.
    """
    others = [tmp_path / "b"] if several else []
    async with run_node(tmp_path / "a", tmp_path / "s", others) as node:
        topic = await node.create_topic()
        node.apply(topic_config("events", max_message_bytes="1000"))

        def sent(*values: bytes, sequence: int) -> bytes:
            return batch(*values, producer_id=7, producer_epoch=0, base_sequence=sequence + known)

        if known:
            assert (await node.append(topic, sent(b"before", sequence=-1))).error_code == 0
        parts = (b"a" * 600, b"b" * 600)
        whole, behind = sent(*parts, sequence=0), [sent(b"c%d" % each, sequence=each) for each in (2, 3)]
        under_way = [node.send_append(topic, records) for records in (whole, *behind)]
        codes = [code(each) for each in await asyncio.gather(*under_way)]
        assert codes == [int(ErrorCode.message_too_large), OUT_OF_ORDER, OUT_OF_ORDER]
        again = [sent(parts[0], sequence=0), sent(parts[1], sequence=1), *behind]
        for number, records in enumerate(again):
            result = await node.append(topic, records)
            assert (result.error_code, result.base_offset) == (0, number + known)
        stored = (await node.fetch(topic)).records
        places = [stored.find(value) for value in (*parts, b"c2", b"c3")]
        assert places == sorted(places)
        assert places[0] >= 0


async def test_a_producer_that_leaves_out_what_is_too_large_goes_on_under_its_next_epoch(
    node: StorageHarness,
) -> None:
    """As librdkafka does."""
    topic = await node.create_topic()
    node.apply(topic_config("events", max_message_bytes="1000"))
    assert (await node.append(topic, FIRST)).error_code == int(ErrorCode.message_too_large)
    assert (await node.append(topic, SECOND)).error_code == OUT_OF_ORDER
    assert (await node.append(topic, SECOND_OF_NEW_EPOCH)).base_offset == 0


async def test_a_producer_that_is_forgotten_leaves_no_refused_sequence(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go by `producer.id.expiration.ms`, and so by the clock."""
    topic = await node.create_topic()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", full)
        assert (await node.append(topic, FIRST)).error_code == STORAGE_ERROR
    upkeep = make_upkeep(node)
    await upkeep.expire_producers()
    assert (await node.append(topic, SECOND)).error_code == OUT_OF_ORDER
    node.clock.advance(EXPIRATION_MS)
    await upkeep.expire_producers()
    assert (await node.append(topic, SECOND)).error_code == 0


async def test_what_was_refused_before_the_partition_was_here_is_forgotten_as_well(
    node: StorageHarness,
) -> None:
    topics = uuid.uuid4(), uuid.uuid4()
    for topic, moved_ms in zip(topics, (0, EXPIRATION_MS), strict=True):
        assert (await node.append(topic, FIRST)).error_code in {UNKNOWN_TOPIC, UNKNOWN_PARTITION}
        node.clock.advance(moved_ms)
        node.apply(*topic_records(f"events-{topic}", topic))
    codes = [(await node.append(topic, SECOND)).error_code for topic in topics]
    assert codes == [OUT_OF_ORDER, 0]
