"""ListOffsets and OffsetForLeaderEpoch through gRPC."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storage_harness import NOW_MS, StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
)
from barnabas.storage.limits import OPENING_WAIT_MS_MAX
from barnabas.storage.replica.replicas import Replicas


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def find(
    node: StorageHarness,
    topic: uuid.UUID,
    timestamp_ms: int,
    *,
    index: int = 0,
    epoch: int = -1,
    level: int = 0,
) -> tuple[int, int, int, int]:
    item = ListOffsetsPartition(
        topic_id=topic.bytes, partition=index, current_leader_epoch=epoch, timestamp_ms=timestamp_ms
    )
    response = await node.connection.ListOffsets(ListOffsetsRequest(partitions=[item], isolation_level=level))
    result = response.results[0]
    return result.error_code, result.offset, result.timestamp_ms, result.leader_epoch


async def test_timestamps_and_ends(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=4)
    assert await find(node, topic, -1) == (0, 0, -1, 4)
    assert await find(node, topic, -3) == (0, -1, -1, -1)
    for number, later in enumerate((0, 20, 10)):
        await node.append(topic, batch(b"%d" % number, timestamp=NOW_MS + later))
    assert await find(node, topic, -1) == (0, 3, -1, 4)
    assert await find(node, topic, -2) == (0, 0, -1, 4)
    assert await find(node, topic, -3) == (0, 1, NOW_MS + 20, 4)
    assert await find(node, topic, -4) == (0, 0, -1, 4)
    assert await find(node, topic, -5) == (0, -1, -1, -1)
    assert await find(node, topic, -6) == (0, -1, -1, -1)
    assert await find(node, topic, 0) == (0, 0, NOW_MS, 4)
    assert await find(node, topic, NOW_MS + 5) == (0, 1, NOW_MS + 20, 4)
    assert await find(node, topic, NOW_MS + 21) == (0, -1, -1, -1)


async def test_read_committed_ends_at_the_last_stable_offset(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a"))
    open_batch = batch(
        b"b", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, timestamp=NOW_MS + 9
    )
    node.verify_no_transactions()
    await node.append(topic, open_batch)
    assert (await find(node, topic, -1))[1] == 2
    assert (await find(node, topic, -1, level=1))[1] == 1
    assert (await find(node, topic, NOW_MS + 9))[1] == 1
    assert (await find(node, topic, NOW_MS + 9, level=1))[1] == -1


async def test_lookups_wait_for_logs_that_are_about_to_be_open(node: StorageHarness) -> None:
    topic = uuid.uuid4()
    looking = [asyncio.create_task(find(node, topic, -1, index=index)) for index in range(2)]
    for _ in range(5):
        await asyncio.sleep(0)
    node.apply(*topic_records("events", topic, 1))
    assert await looking[0] == (0, 0, -1, 0)
    assert not looking[1].done()
    node.apply(*topic_records("events", topic, 2))
    assert await looking[1] == (0, 0, -1, 0)


async def test_lookups_wait_no_more_for_a_log_that_has_been_opening_for_long(node: StorageHarness) -> None:
    """A client's questions are answered one after the other, and were each to wait, the last would wait for all."""
    topic = uuid.uuid4()
    node.apply(*topic_records("events", topic, 1))
    assert node.replica(topic).is_opening
    node.clock.advance(OPENING_WAIT_MS_MAX)
    with pytest.raises(StopIteration):
        node.replicas.wait_until_open([(topic.bytes, 0)]).send(None)
    await node.until_open()
    assert await find(node, topic, -1) == (0, 0, -1, 0)


async def test_lookups_wait_once_for_a_partition_that_nobody_has_heard_of(node: StorageHarness) -> None:
    keys = [(uuid.uuid4().bytes, 0)]
    node.replicas.wait_until_open(keys).send(None)  # it waits
    node.clock.advance(OPENING_WAIT_MS_MAX)
    with pytest.raises(StopIteration):
        node.replicas.wait_until_open(keys).send(None)
    node.apply(*topic_records("another", uuid.uuid4(), 1))
    node.replicas.wait_until_open(keys).send(None)  # what the metadata say next may name it


async def test_who_looks_for_very_much_is_remembered_in_part(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.limits.UNNAMED_PARTITIONS_MAX", 2)
    topic = uuid.uuid4().bytes
    for index in range(3):
        node.replicas.wait_until_open([(topic, index)]).send(None)
    node.clock.advance(OPENING_WAIT_MS_MAX)
    node.replicas.wait_until_open([(topic, 0)]).send(None)  # it was forgotten
    with pytest.raises(StopIteration):
        node.replicas.wait_until_open([(topic, 2)]).send(None)


async def test_lookups_wait_for_the_log_that_opens_last(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long after the node has started, beside a partition that is open; and for what is left of the second."""
    open_one, opening = await node.create_topic("first"), uuid.uuid4()
    node.clock.advance(10 * OPENING_WAIT_MS_MAX)
    monkeypatch.setattr(Replicas, "_begin", lambda *_, **__: None)  # it opens never
    node.apply(*topic_records("events", opening, 1))
    keys = [(open_one.bytes, 0), (opening.bytes, 0)]
    node.clock.advance(OPENING_WAIT_MS_MAX - 1)
    node.replicas.wait_until_open(keys).send(None)  # it waits
    async with asyncio.timeout(OPENING_WAIT_MS_MAX / 1000 / 2):
        await node.replicas.wait_until_open(keys)


async def test_lookups_are_refused_like_fetches(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.limits.OPENING_WAIT_MS_MAX", 0)
    topic = await node.create_topic(leader_epoch=4)
    assert (await find(node, uuid.uuid4(), -1))[0] == int(ErrorCode.unknown_topic_id)
    assert (await find(node, topic, -1, index=1))[0] == int(ErrorCode.unknown_topic_or_partition)
    assert (await find(node, topic, -1, epoch=3))[0] == int(ErrorCode.fenced_leader_epoch)
    assert (await find(node, topic, -1, epoch=5))[0] == int(ErrorCode.unknown_leader_epoch)
    assert (await find(node, topic, -99))[0] == int(ErrorCode.unsupported_version)


async def test_ends_of_leader_epochs(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=1)
    await node.append(topic, batch(b"a", b"b"))
    node.apply(*topic_records("events", topic, leader_epoch=3))
    await node.append(topic, batch(b"c"))
    items = [
        OffsetForLeaderEpochPartition(
            topic_id=topic.bytes, partition=index, current_leader_epoch=-1, leader_epoch=epoch
        )
        for index, epoch in ((0, 1), (0, 2), (0, 3), (0, 9), (5, 1))
    ]
    response = await node.connection.OffsetForLeaderEpoch(OffsetForLeaderEpochRequest(partitions=items))
    found = [(each.error_code, each.end.leader_epoch, each.end.end_offset) for each in response.results]
    unknown = int(ErrorCode.unknown_topic_or_partition)
    assert found == [(0, 1, 2), (0, 1, 2), (0, 3, 3), (0, -1, -1), (unknown, -1, -1)]
