"""DeleteRecords, DescribeLogDirs and DescribeProducers through gRPC."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NOW_MS, StorageHarness, batch, run_node, topic_config

from barnabas.kernel.errors import ErrorCode
from barnabas.messages import storage_pb2 as pb


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def delete(node: StorageHarness, topic: uuid.UUID, before: int, index: int = 0) -> tuple[int, int]:
    item = pb.DeleteRecordsPartition(topic_id=topic.bytes, partition=index, before_offset=before)
    response = await node.connection.DeleteRecords(pb.DeleteRecordsRequest(partitions=[item]))
    (result,) = response.results
    return result.error_code, result.low_watermark


async def test_the_start_of_a_log_moves_forward_only(node: StorageHarness) -> None:
    topic = await node.create_topic()
    for number in range(4):
        await node.append(topic, batch(b"%d" % number))
    assert await delete(node, topic, 2) == (0, 2)
    assert await delete(node, topic, 1) == (0, 2)
    assert (await node.fetch(topic, 1)).error_code == ErrorCode.offset_out_of_range
    assert (await node.fetch(topic, 2)).log_start_offset == 2
    assert await delete(node, topic, 5) == (ErrorCode.offset_out_of_range, -1)
    assert await delete(node, topic, -2) == (ErrorCode.offset_out_of_range, -1)
    assert await delete(node, topic, -1) == (0, 4)
    assert (await node.append(topic, batch(b"4"))).base_offset == 4


async def test_what_may_not_be_deleted(node: StorageHarness) -> None:
    assert await delete(node, uuid.uuid4(), 0) == (ErrorCode.unknown_topic_id, -1)
    internal = await node.create_topic("internal", internal=True)
    assert await delete(node, internal, 0) == (ErrorCode.invalid_topic_exception, -1)
    elsewhere = await node.create_topic("elsewhere", leader=2)
    assert await delete(node, elsewhere, 0) == (ErrorCode.not_leader_or_follower, -1)
    compacted = await node.create_topic("compacted")
    assert await delete(node, compacted, 0, index=1) == (ErrorCode.unknown_topic_or_partition, -1)
    node.apply(topic_config("compacted", cleanup_policy="compact"))
    assert await delete(node, compacted, 0) == (ErrorCode.policy_violation, -1)
    node.apply(topic_config("compacted", cleanup_policy="compact,delete"))
    assert await delete(node, compacted, 0) == (0, 0)


async def log_dirs(node: StorageHarness, **asked: Any) -> list[pb.LogDirDescription]:
    response = await node.connection.DescribeLogDirs(pb.DescribeLogDirsRequest(**asked))
    return list(response.log_dirs)


async def test_log_directories(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await node.create_topic(partitions=2)
    records = batch(b"some")
    await node.append(topic, records, index=1)
    (described,) = await log_dirs(node, all_partitions=True)
    assert (described.error_code, described.path) == (0, str(node.directory))
    assert 0 < described.usable_bytes < described.total_bytes
    rows = {(row.topic, row.partition): (row.size_bytes, row.offset_lag) for row in described.partitions}
    assert rows == {("events", 0): (0, 0), ("events", 1): (len(records), 0)}
    one = pb.PartitionOfTopic(topic_id=topic.bytes, partition=1)
    unknown = pb.PartitionOfTopic(topic_id=bytes(16), partition=0)
    (described,) = await log_dirs(node, partitions=[one, one, unknown])
    assert [row.partition for row in described.partitions] == [1]
    (described,) = await log_dirs(node)
    assert (described.path, len(described.partitions)) == (str(node.directory), 0)

    def fail(_: str) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(node.files, "statvfs", fail)
    (described,) = await log_dirs(node, all_partitions=True)
    assert (described.error_code, described.total_bytes) == (ErrorCode.kafka_storage_error, -1)


async def producers(node: StorageHarness, topic: uuid.UUID) -> pb.PartitionProducers:
    item = pb.PartitionOfTopic(topic_id=topic.bytes, partition=0)
    response = await node.connection.DescribeProducers(pb.DescribeProducersRequest(partitions=[item]))
    (result,) = response.results
    return result


async def test_producers(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a"))
    assert await producers(node, topic) == pb.PartitionProducers()
    plain = batch(b"b", b"c", producer_id=7, producer_epoch=3, base_sequence=0, timestamp=NOW_MS)
    in_transaction = batch(
        b"d", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True, timestamp=NOW_MS + 1
    )
    await node.append(topic, plain)
    node.verify_no_transactions()
    await node.append(topic, in_transaction)
    seven, eight = (await producers(node, topic)).producers
    assert (seven.producer_id, seven.producer_epoch, seven.last_sequence) == (7, 3, 1)
    assert (seven.last_timestamp_ms, seven.coordinator_epoch) == (NOW_MS, -1)
    assert seven.current_transaction_start_offset == -1
    assert (eight.producer_id, eight.current_transaction_start_offset) == (8, 3)
    assert (await producers(node, uuid.uuid4())).error_code == ErrorCode.unknown_topic_id
    elsewhere = await node.create_topic("elsewhere", leader=2)
    assert (await producers(node, elsewhere)).error_code == ErrorCode.not_leader_or_follower
