"""The high watermark that was written down before a stop is taken for what it can be (KAFKA-3978, KAFKA-16452)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.messages.storage_pb2 import DeleteRecordsPartition, DeleteRecordsRequest

CHECKPOINT = "replication-offset-checkpoint"
START, END = 2, 5


async def make_log(node: StorageHarness) -> uuid.UUID:
    """A log of the offsets from START to before END."""
    topic = await node.create_topic()
    for _ in range(END):
        assert (await node.append(topic, batch(b"a"))).error_code == 0
    item = DeleteRecordsPartition(topic_id=topic.bytes, partition=0, before_offset=START)
    deleted = await node.connection.DeleteRecords(DeleteRecordsRequest(partitions=[item]))
    assert [each.error_code for each in deleted.results] == [0]
    return topic


@pytest.mark.parametrize(
    ("written", "known"),
    [
        (None, START),
        (0, START),
        (1, START),
        (START, START),
        (4, 4),
        (END, END),
        (END + 1, END),
        (10**18, END),
    ],
    ids=["lost", "none", "before the log", "its start", "within", "its end", "after it", "far after it"],
)
async def test_it_is_within_the_log(tmp_path: Path, written: int | None, known: int) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place) as node:
        topic = await make_log(node)
    path = tmp_path / "a" / CHECKPOINT
    assert f"events 0 {END}" in path.read_text()
    if written is None:
        path.unlink()
    else:
        path.write_text(f"0\n1\nevents 0 {written}\n")
    async with run_node(*place) as node:
        node.snapshot(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(1, 2)))
        await node.until_open()
        replica = node.replica(topic)
        assert replica.log is not None
        assert (replica.log.log_start_offset, replica.log.log_end_offset) == (START, END)
        assert replica.high_watermark == known
