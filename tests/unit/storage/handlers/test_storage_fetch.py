"""Storage.Fetch through gRPC: what is read, and how long a fetch waits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storage_harness import NOW_MS, StorageHarness, batch, coordinator_record, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.storage_pb2 import FetchRequest, PartitionFetch, PartitionFetchResult
from barnabas.records.control import encode_marker
from barnabas.records.record import decode_records

LONG_MS = 600_000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


def values(result: PartitionFetchResult) -> list[bytes | None]:
    found: list[bytes | None] = []
    records = result.records
    while records:
        size = int.from_bytes(records[8:12], "big") + 12
        found += [record.value for record in decode_records(records[:size])]
        records = records[size:]
    return found


async def test_reads_what_was_appended(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a", b"b"))
    await node.append(topic, batch(b"c"))
    result = await node.fetch(topic)
    assert values(result) == [b"a", b"b", b"c"]
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (3, 3, 0)
    assert values(await node.fetch(topic, 2)) == [b"c"]
    assert node.replica(topic).counts.bytes_out > 0


async def test_refusals(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=5)
    elsewhere = await node.create_topic("elsewhere", leader=2, replicas=(2,))
    await node.append(topic, batch(b"a"))

    async def code(topic_id: uuid.UUID, offset: int = 0, **options: int) -> ErrorCode:
        # Errors are answered at once, however long the fetch may wait.
        return ErrorCode((await node.fetch(topic_id, offset, max_wait_ms=LONG_MS, **options)).error_code)

    assert await code(uuid.uuid4()) == ErrorCode.unknown_topic_id
    assert await code(topic, index=3) == ErrorCode.unknown_topic_or_partition
    assert await code(elsewhere) == ErrorCode.not_leader_or_follower
    assert await code(topic, 2) == ErrorCode.offset_out_of_range
    assert await code(topic, -1) == ErrorCode.offset_out_of_range
    assert await code(topic, current_leader_epoch=4) == ErrorCode.fenced_leader_epoch
    assert await code(topic, current_leader_epoch=6) == ErrorCode.unknown_leader_epoch
    out_of_range = await node.fetch(topic, 9)
    assert (out_of_range.high_watermark, out_of_range.log_start_offset) == (1, 0)


async def test_diverging_epochs_are_told(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=1)
    await node.append(topic, batch(b"a"))
    node.apply(*topic_records("events", topic, leader_epoch=3))
    await node.append(topic, batch(b"b"))
    result = await node.fetch(topic, 2, last_fetched_epoch=2)
    assert (result.diverging.leader_epoch, result.diverging.end_offset) == (1, 1)
    agreed = await node.fetch(topic, 1, last_fetched_epoch=1)
    assert not agreed.HasField("diverging")
    assert values(agreed) == [b"b"]


async def test_the_first_batch_is_sent_however_large(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    for index in (0, 1):
        await node.append(topic, batch(bytes(5_000)), index=index)
        await node.append(topic, batch(bytes(5_000)), index=index)
    items = [
        PartitionFetch(
            topic_id=topic.bytes,
            partition=index,
            max_bytes=10,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
        )
        for index in (0, 1)
    ]
    request = FetchRequest(partitions=items, min_bytes=1, max_bytes=100)
    result = await node.answer(node.connection.fetches.send(request))
    assert [len(values(each)) for each in result.partitions] == [1, 0]


async def test_an_append_wakes_a_waiting_fetch(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    waiting = node.connection.fetches.send(node.fetch_request(topic, index=1, max_wait_ms=LONG_MS))
    await node.until_waiting(1)
    await node.append(topic, batch(b"other"), index=0)
    assert len(node.purgatory) == 1
    await node.append(topic, batch(b"a"), index=1)
    assert values((await node.answer(waiting)).partitions[0]) == [b"a"]
    assert len(node.purgatory) == 0
    assert not node.replica(topic, 1).watchers


async def test_min_bytes_are_added_up_over_partitions(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic(partitions=3)
    reads = 0
    read = node.reader.read

    def counting(request: FetchRequest) -> object:
        nonlocal reads
        reads += 1
        return read(request)

    monkeypatch.setattr(node.reader, "read", counting)
    one = batch(bytes(100))
    request = node.fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=3 * len(one))
    for index in (1, 2):
        request.partitions.add(
            topic_id=topic.bytes,
            partition=index,
            max_bytes=10_000,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
        )
    waiting = node.connection.fetches.send(request)
    await node.until_waiting(1)
    for index in (0, 1):
        await node.append(topic, one, index=index)
        assert (len(node.purgatory), reads) == (1, 1)
    await node.append(topic, one, index=2)
    result = await node.answer(waiting)
    assert [len(each.records) for each in result.partitions] == [len(one)] * 3
    assert reads == 2


async def test_a_fetch_that_is_read_in_vain_does_not_wait_anew(node: StorageHarness) -> None:
    topic = await node.create_topic()
    waiting = node.connection.fetches.send(node.fetch_request(topic, max_wait_ms=LONG_MS))
    await node.until_waiting(1)
    (fetch,) = node.replica(topic).watchers
    timer = fetch.timer
    node.apply(*topic_records("events", topic, leader_epoch=1))  # which it does not ask about
    await node.until_waiting(0)
    await node.until_waiting(1)
    assert timer is not None
    assert fetch.timer is timer
    await node.append(topic, batch(b"a"), leader_epoch=1)
    assert values((await node.answer(waiting)).partitions[0]) == [b"a"]
    assert timer.cancelled()


async def test_a_hurried_fetch_answers_with_what_there_is(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a"))
    request = node.fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=1 << 20)
    waiting = node.connection.fetches.send(request)
    await node.until_waiting(1)
    node.connection.fetches.hurry(request)
    assert values((await node.answer(waiting)).partitions[0]) == [b"a"]


async def test_a_withdrawn_fetch_is_forgotten(node: StorageHarness) -> None:
    topic = await node.create_topic()
    requests = [node.fetch_request(topic, max_wait_ms=LONG_MS) for _ in range(3)]
    futures = [node.connection.fetches.send(request) for request in requests]
    await node.until_waiting(3)
    for request in requests[:2]:
        node.connection.fetches.withdraw(request)
    await node.until_waiting(1)
    assert len(node.replica(topic).watchers) == 1
    assert node.connection.fetches.waiting_requests == 1
    await node.append(topic, batch(b"a"))
    assert values((await node.answer(futures[2])).partitions[0]) == [b"a"]
    assert [future.cancelled() for future in futures] == [True, True, False]


async def test_no_fetch_waits_for_more_than_its_answer_holds(node: StorageHarness) -> None:
    topic = await node.create_topic()
    one = batch(b"value")
    for _ in range(3):
        await node.append(topic, one)
    for limits in ({"max_bytes": 2 * len(one) + 5, "min_bytes": 1 << 20}, {"max_bytes": 1, "min_bytes": 1}):
        result = await node.fetch(topic, max_wait_ms=LONG_MS, **limits)
        assert len(result.records) == max(1, limits["max_bytes"] // len(one)) * len(one)


async def test_time_over_answers_with_what_there_is(node: StorageHarness) -> None:
    topic = await node.create_topic()
    result = await node.fetch(topic, max_wait_ms=5)
    assert (result.error_code, result.records, result.high_watermark) == (0, b"", 0)
    assert len(node.purgatory) == 0


async def test_a_waiting_fetch_learns_of_deletion_and_of_a_new_leader(node: StorageHarness) -> None:
    moved = await node.create_topic("moved")
    deleted = await node.create_topic("deleted")
    waiting = [
        node.connection.fetches.send(node.fetch_request(topic, max_wait_ms=LONG_MS))
        for topic in (moved, deleted)
    ]
    await node.until_waiting(2)
    node.snapshot(*topic_records("moved", moved, leader=2, leader_epoch=1, replicas=(2, 1)))
    codes = [(await node.answer(future)).partitions[0].error_code for future in waiting]
    assert codes == [int(ErrorCode.not_leader_or_follower), int(ErrorCode.unknown_topic_id)]


async def test_a_stream_that_ends_leaves_nothing_waiting(node: StorageHarness) -> None:
    topic = await node.create_topic()
    waiting = node.connection.fetches.send(node.fetch_request(topic, max_wait_ms=LONG_MS))
    await node.until_waiting(1)
    await node.connection.fetches.close()
    await node.until_waiting(0)
    assert not node.replica(topic).watchers
    assert waiting.exception() is not None


async def test_read_committed_stops_at_open_transactions(node: StorageHarness) -> None:
    topic = await node.create_topic()
    node.verify_no_transactions()
    await node.append(topic, batch(b"plain"))
    for sequence in range(2):
        open_batch = batch(
            b"open", producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        assert (await node.append(topic, open_batch)).error_code == 0
    committed = await node.fetch(topic, isolation_level=1)
    assert values(committed) == [b"plain"]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 3)
    assert len(values(await node.fetch(topic))) == 3
    waiting = node.connection.fetches.send(
        node.fetch_request(topic, 1, isolation_level=1, max_wait_ms=LONG_MS, min_bytes=150)
    )
    await node.until_waiting(1)
    await node.append(topic, batch(b"still open"))
    assert len(node.purgatory) == 1
    marker = encode_marker(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
    )
    node.apply(coordinator_record("c", "now"))
    assert (await node.append(topic, marker, coordinator=("c", "now"))).error_code == 0
    result = (await node.answer(waiting)).partitions[0]
    assert result.last_stable_offset == 5
    assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions] == [(7, 1)]


async def test_what_is_not_in_memory_is_read_in_a_thread(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a"))
    read = SegmentFile.read

    def cold(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> bytes:
        if nowait:
            raise BlockingIOError
        return read(file, position, length)

    monkeypatch.setattr(SegmentFile, "read", cold)
    results = await asyncio.gather(*(node.fetch(topic, max_wait_ms=LONG_MS) for _ in range(10)))
    assert all(values(result) == [b"a"] for result in results)
    assert node.fetches.cold_reads == 10


async def test_too_many_waiting_fetches_are_answered_at_once(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    monkeypatch.setattr(node.purgatory, "_fetches_max", 1)
    kept = node.connection.fetches.send(node.fetch_request(topic, max_wait_ms=LONG_MS))
    await node.until_waiting(1)
    assert (await node.fetch(topic, max_wait_ms=LONG_MS)).records == b""
    assert not kept.done()


@pytest.mark.parametrize("cold", [False, True])
async def test_a_fault_of_ours_is_answered(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    topic = await node.create_topic()

    def broken(_: FetchRequest, *, nowait: bool = False) -> None:
        if cold and nowait:
            raise BlockingIOError
        raise AssertionError("a broken rule")

    monkeypatch.setattr(node.reader, "read", broken)
    result = await node.fetch(topic, max_wait_ms=LONG_MS)
    assert result.error_code == int(ErrorCode.unknown_server_error)
