"""Storage.Append through gRPC: what is appended, what is refused, and when it is acknowledged."""

from __future__ import annotations

import asyncio
import errno
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NOW_MS, StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.gateway import limits as gateway_limits
from barnabas.kernel.errors import ErrorCode
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import PreparedBatch, prepare_leader_batches
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.storage_pb2 import AppendRequest, PartitionAppend, PartitionAppendResult
from barnabas.records.record import encode_batch
from barnabas.storage import limits
from barnabas.storage.replica.topic_settings import TopicSettings


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def test_offsets_follow_the_order_sent(node: StorageHarness) -> None:
    topic = await node.create_topic()
    futures = [node.send_append(topic, batch(b"a", b"b")) for _ in range(50)]
    results = await asyncio.gather(*futures)
    assert [result.partitions[0].base_offset for result in results] == list(range(0, 100, 2))
    replica = node.replica(topic)
    assert (replica.high_watermark, replica.counts.messages_in) == (100, 100)


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_every_acks_is_answered(node: StorageHarness, acks: int) -> None:
    topic = await node.create_topic()
    result = await node.append(topic, batch(b"a"), acks=acks)
    assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, 0, -1)


async def test_refusals(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=5)
    internal = await node.create_topic("__consumer_offsets", internal=True)
    elsewhere = await node.create_topic("elsewhere", leader=2, replicas=(2,))
    good = batch(b"a")
    corrupt = good[:-1] + b"?"

    async def code(topic_id: uuid.UUID, records: bytes, **options: object) -> ErrorCode:
        return ErrorCode((await node.append(topic_id, records, **options)).error_code)

    assert await code(uuid.uuid4(), good) == ErrorCode.unknown_topic_id
    assert await code(topic, good, index=9) == ErrorCode.unknown_topic_or_partition
    assert await code(elsewhere, good) == ErrorCode.not_leader_or_follower
    assert await code(topic, good, leader_epoch=4) == ErrorCode.fenced_leader_epoch
    assert await code(topic, good, leader_epoch=6) == ErrorCode.unknown_leader_epoch
    assert await code(topic, good, leader_epoch=5) == ErrorCode.none
    assert await code(topic, good, acks=2) == ErrorCode.invalid_required_acks
    assert await code(topic, corrupt) == ErrorCode.corrupt_message
    assert await code(internal, good) == ErrorCode.invalid_topic_exception


async def test_one_partition_failing_leaves_the_others(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    items = [
        PartitionAppend(topic_id=topic.bytes, partition=index, leader_epoch=-1, records=batch(b"a"))
        for index in (0, 7, 1)
    ]
    result = await node.connection.appends.send(AppendRequest(partitions=items, acks=-1, timeout_ms=1000))
    unknown = int(ErrorCode.unknown_topic_or_partition)
    assert [each.error_code for each in result.partitions] == [0, unknown, 0]


async def test_settings_apply_at_once(node: StorageHarness) -> None:
    topic = await node.create_topic()
    large = batch(bytes(2_000))
    assert (await node.append(topic, large)).error_code == 0
    node.apply(topic_config("events", max_message_bytes="1000"))
    assert (await node.append(topic, large)).error_code == int(ErrorCode.message_too_large)
    node.apply(topic_config("events", message_timestamp_type="LogAppendTime"))
    assert (await node.append(topic, large)).log_append_time_ms == node.clock.now_ms()


async def test_the_records_to_blame_are_named(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    node.apply(topic_config("events", cleanup_policy="compact"))
    records = encode_batch([(NOW_MS, key, b"v", ()) for key in (b"k", None, b"k", None)])
    refused = await node.append(topic, records)
    assert refused.error_code == int(ErrorCode.invalid_record)
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert all("key" in error.message for error in refused.record_errors)
    assert not (await node.append(topic, records[:-1])).record_errors


@pytest.mark.parametrize("key", [b"k", None])
async def test_records_that_take_long_to_check_make_no_directory_slow_and_refused_ones_none_fast(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, key: bytes | None
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", cleanup_policy="compact"))
    lane, seconds = node.replica(topic).lane, [-1e6]
    assert lane is not None

    def check(*args: Any, **options: Any) -> list[PreparedBatch]:
        seconds[0] += 10
        return prepare_leader_batches(*args, **options)

    monkeypatch.setattr(lane, "_now", lambda: seconds[0])
    monkeypatch.setattr("barnabas.log.appender.prepare_leader_batches", check)
    answer = await node.append(topic, encode_batch([(NOW_MS, key, b"v", ())]))
    assert answer.error_code == int(ErrorCode.none if key else ErrorCode.invalid_record)
    assert seconds[0] == -1e6 + 10
    assert lane.is_direct(seconds[0]) == (key is not None), "what is refused has touched no disk"
    lane.on_append(seconds[0], seconds[0])
    assert lane.is_direct(seconds[0])


@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_repeated_batch_proves_no_directory_fast(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, is_direct: bool
) -> None:
    topic = await node.create_topic()
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    await node.append(topic, numbered)
    lane = node.replica(topic).lane
    assert lane is not None
    proven_at = lane._proven_at
    monkeypatch.setattr(lane, "is_direct", lambda _: is_direct)
    assert (await node.append(topic, numbered)).base_offset == 0
    assert lane._proven_at == proven_at
    assert (await node.append(topic, batch(b"b"))).base_offset == 1
    assert lane._proven_at > proven_at


async def test_a_duplicate_is_answered_with_its_first_offset(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"before"))
    numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await node.append(topic, numbered)).base_offset == 1
    again = await node.append(topic, numbered)
    assert (again.error_code, again.base_offset) == (0, 1)
    gap = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=9)
    assert (await node.append(topic, gap)).error_code == int(ErrorCode.out_of_order_sequence_number)


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
@pytest.mark.parametrize("lane", [False, True])
async def test_what_is_out_of_order_at_a_leader_that_may_be_deposed_is_refused_as_by_a_former_one(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, replicas: tuple[int, ...], lane: bool
) -> None:
    """The one after it may have what came before; librdkafka's producers take the sequence's refusal for their end."""
    topic = await node.create_topic(replicas=replicas)
    if lane:
        monkeypatch.setattr(node.replica(topic).lane, "is_direct", lambda _: False)
    is_in_touch = False
    monkeypatch.setattr(node.appends, "_is_in_touch", lambda: is_in_touch)

    async def append(sequence: int) -> PartitionAppendResult:
        numbered = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return await node.append(topic, numbered, acks=1)

    assert (await append(0)).error_code == 0
    refused = await append(9)
    if len(replicas) == 1:  # nobody else can lead
        assert refused.error_code == int(ErrorCode.out_of_order_sequence_number)
        return
    assert (refused.error_code, refused.never_appended) == (int(ErrorCode.not_leader_or_follower), True)
    is_in_touch = True
    assert (await append(9)).error_code == int(ErrorCode.out_of_order_sequence_number)
    assert (await append(1)).error_code == 0


async def test_what_comes_behind_a_batch_refused_elsewhere_needs_a_log_that_knows_the_producer(
    node: StorageHarness,
) -> None:
    topic = await node.create_topic()

    def numbered(sequence: int) -> bytes:
        return batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def code(records: bytes) -> ErrorCode:
        item = PartitionAppend(
            topic_id=topic.bytes, partition=0, leader_epoch=-1, records=records, behind_refused=True
        )
        request = AppendRequest(partitions=[item], acks=1, timeout_ms=1_000)
        (result,) = (await node.connection.appends.send(request, len(records))).partitions
        return ErrorCode(result.error_code)

    assert await code(numbered(1)) == ErrorCode.out_of_order_sequence_number, "0 may still come"
    assert (await node.append(topic, numbered(0))).error_code == 0
    assert await code(numbered(2)) == ErrorCode.out_of_order_sequence_number, "1 is missing"
    assert await code(numbered(1)) == ErrorCode.none
    assert await code(batch(b"of no sequence")) == ErrorCode.none
    assert await code(b"") != ErrorCode.none


async def test_acks_all_needs_min_insync_replicas(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    records = topic_records("events", topic, replicas=(1, 2))
    del records[0].partition.isr[1:]
    node.apply(*records, topic_config("events", min_insync_replicas="2"))
    await node.until_open()
    assert (await node.append(topic, batch(b"a"))).error_code == int(ErrorCode.not_enough_replicas)
    assert (await node.append(topic, batch(b"a"), acks=1)).error_code == 0


async def test_a_full_disk_refuses_and_recovers(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "write", full)
        for _ in range(3):
            refused = await node.append(topic, batch(b"b"))
            assert refused.error_code == int(ErrorCode.kafka_storage_error)
            assert "No space left" in refused.error_message
    assert (await node.append(topic, batch(b"c"))).base_offset == 1
    assert node.replica(topic).counts.failed_appends == 3


async def test_appends_wait_for_a_log_that_is_being_opened(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPENING_WAIT_MS_MAX", 20_000)  # however busy the machine is
    topic = uuid.uuid4()
    node.apply(*topic_records("events", topic, 40))
    assert node.replica(topic, 39).is_opening
    answers: list[int] = []
    for number in range(3):
        request = AppendRequest(correlation_id=number, acks=-1, timeout_ms=1_000)
        request.partitions.add(topic_id=topic.bytes, partition=39, leader_epoch=-1, records=batch(b"a"))
        node.appends.handle(request, lambda result: answers.append(result.partitions[0].base_offset))
    assert (answers, node.appends.waiting) == ([], 3)
    async with asyncio.timeout(20):
        while node.appends.waiting:
            await asyncio.sleep(0)
    assert answers == [0, 1, 2]


async def test_group_commit_answers_after_a_sync_that_many_share(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    may_sync, syncs = threading.Event(), []
    flush = PartitionLog.flush

    def slow_flush(log: PartitionLog) -> int:
        syncs.append(log.log_end_offset)
        may_sync.wait(20)
        return flush(log)

    monkeypatch.setattr(PartitionLog, "flush", slow_flush)
    futures = [node.send_append(topic, batch(b"a"), acks=acks) for acks in [1, -1] * 20]
    replica = node.replica(topic)
    while replica.counts.messages_in < 40:
        await asyncio.sleep(0)
    assert replica.high_watermark == 0
    assert not any(future.done() for future in futures)
    may_sync.set()
    results = await asyncio.gather(*futures)
    assert all(result.partitions[0].error_code == 0 for result in results)
    assert len(syncs) <= 3
    assert replica.high_watermark == 40


async def test_a_rolled_segment_is_flushed_without_being_asked_for(node: StorageHarness) -> None:
    topic = await node.create_topic()
    node.replica(topic).update_settings(TopicSettings(LogConfig(segment_bytes=500)))
    for _ in range(20):
        await node.append(topic, batch(b"x" * 100))
    log = node.replica(topic).log
    assert log is not None
    assert len(log.segments) > 3
    async with asyncio.timeout(20):
        while log.is_finished_segment_unflushed:
            await asyncio.sleep(0)
    assert log.recovery_point == log.segment_base_offsets[-1]
    assert log.unflushed_records > 0


async def test_a_failed_sync_is_never_acknowledged(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))

    def broken(_: SegmentFile) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SegmentFile, "sync", broken)
    for _ in range(2):
        result = await node.append(topic, batch(b"a"))
        assert result.error_code == int(ErrorCode.kafka_storage_error)
    assert node.replica(topic).is_offline
    monkeypatch.undo()


async def test_losing_the_leadership_fails_what_waits(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    may_sync = threading.Event()
    monkeypatch.setattr(PartitionLog, "flush", lambda log: may_sync.wait(20) and log.recovery_point)
    future = node.send_append(topic, batch(b"a"))
    while not node.appends.waiting:
        await asyncio.sleep(0)
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(2, 1)))
    result = await future
    may_sync.set()
    assert result.partitions[0].error_code == int(ErrorCode.not_leader_or_follower)
    monkeypatch.undo()


async def test_what_is_refused_unwritten_says_so_and_what_waits_when_leadership_goes_does_not(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first may be sent elsewhere if it has no sequence."""
    topic = await node.create_topic()
    elsewhere = await node.create_topic("elsewhere", leader=2, replicas=(2, 1))
    assert (await node.append(elsewhere, batch(b"a"))).never_appended
    node.apply(topic_config("events", flush_messages="1"))
    may_sync = threading.Event()
    monkeypatch.setattr(PartitionLog, "flush", lambda log: may_sync.wait(20) and log.recovery_point)
    waits = node.send_append(topic, batch(b"a"))
    while not node.appends.waiting:
        await asyncio.sleep(0)
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(2, 1)))
    (refused,) = (await waits).partitions
    may_sync.set()
    assert (refused.error_code, refused.never_appended) == (ErrorCode.not_leader_or_follower, False)
    monkeypatch.undo()


async def test_before_a_hand_over_nothing_of_clients_is_taken_for_what_others_have_as_well(
    node: StorageHarness,
) -> None:
    alone = await node.create_topic("alone")
    shared = await node.create_topic("shared", replicas=(1, 2))
    await node.appends.refuse_before_hand_over(1.0)
    assert (await node.append(alone, batch(b"a"))).error_code == 0
    for acks in (1, -1):
        refused = await node.append(shared, batch(b"a"), acks=acks)
        assert (refused.error_code, refused.never_appended) == (ErrorCode.not_leader_or_follower, True)
        assert node.replica(shared).appending.append_at_once(memoryview(batch(b"a")), acks) is None
    node.appends.go_on()
    assert (await node.append(shared, batch(b"a"), acks=1)).base_offset == 0


async def test_a_node_comes_to_rest_once_it_has_answered_what_it_took(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    may_sync, flush = threading.Event(), PartitionLog.flush
    monkeypatch.setattr(PartitionLog, "flush", lambda log: may_sync.wait(20) and flush(log))
    taken = node.send_append(topic, batch(b"a"))
    while not node.appends.waiting:
        await asyncio.sleep(0)
    await node.appends.refuse_before_hand_over(0.01)
    assert not taken.done(), "it waits no longer than it is told to"
    resting = asyncio.ensure_future(node.appends.refuse_before_hand_over(20.0))
    await asyncio.sleep(0.01)
    assert not resting.done()
    may_sync.set()
    await resting
    assert (await taken).partitions[0].error_code == 0


async def test_before_a_hand_over_what_was_taken_is_copied(node: StorageHarness) -> None:
    """Also what was acknowledged before anybody had it (acks=1). Nobody follows here, so the time runs out."""
    topic = await node.create_topic(replicas=(1, 2))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await node.appends.refuse_before_hand_over(5.0)
    assert loop.time() - began < 1.0, "there is nothing to be copied"
    node.appends.go_on()
    assert (await node.append(topic, batch(b"a"), acks=1)).error_code == 0
    began = loop.time()
    await node.appends.refuse_before_hand_over(0.2)
    assert loop.time() - began >= 0.2


async def test_a_node_that_has_handed_over_answers_until_nobody_asks(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateways that do not know yet who leads ask again within a shorter time than it waits for them."""
    assert limits.UNASKED_SECONDS > 2 * gateway_limits.RESEND_PAUSE_SECONDS
    monkeypatch.setattr(limits, "UNASKED_SECONDS", 0.6)
    monkeypatch.setattr(limits, "UNASKED_SECONDS_MAX", 60.0)
    topic = await node.create_topic()
    await node.appends.stop(1.0)
    waiting = asyncio.ensure_future(node.appends.wait_until_unasked())
    for _ in range(4):
        await asyncio.sleep(limits.UNASKED_SECONDS / 3)
        assert (await node.append(topic, batch(b"a"))).never_appended
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting
