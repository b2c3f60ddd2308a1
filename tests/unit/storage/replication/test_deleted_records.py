"""Deleted records are answered for once no replica has them that may come to lead (KIP-107)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, Stream, change, create_topic, node_record, streams_of
from nodes_in_one_process import Nodes, run_nodes, until
from storage_harness import StorageHarness, batch, run_node

from barnabas.kernel.errors import ErrorCode
from barnabas.messages import storage_pb2 as pb
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


async def delete(
    handler: DeleteRecordsHandler, topic_id: uuid.UUID, before: int, timeout_ms: int = 5_000
) -> tuple[int, int]:
    item = pb.DeleteRecordsPartition(topic_id=topic_id.bytes, before_offset=before)
    response = await handler.handle(pb.DeleteRecordsRequest(partitions=[item], timeout_ms=timeout_ms))
    (result,) = response.results
    return result.error_code, result.low_watermark


async def deleting(node: StorageHarness, topic_id: uuid.UUID, before: int) -> asyncio.Task[tuple[int, int]]:
    """A deletion that waits; followers have something to hear by then."""
    task = asyncio.create_task(delete(DeleteRecordsHandler(node.replicas), topic_id, before))
    replica = node.replica(topic_id)
    await until(lambda: replica.deletions._waiting or task.done())
    return task


async def filled(node: StorageHarness) -> uuid.UUID:
    """Two records in a topic of three replicas, all of them committed by the leader alone."""
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    await node.append(topic_id, batch(b"a"))
    await node.append(topic_id, batch(b"b"))
    return topic_id


async def test_all_that_are_alive_are_waited_for(node: StorageHarness) -> None:
    topic_id = await filled(node)
    handler = streams_of(node)
    async with Stream(handler, 2, EPOCHS[2]) as second, Stream(handler, 3, EPOCHS[3]) as third:
        second.at(topic_id, 2, 0)
        task = await deleting(node, topic_id, 2)
        second.at(topic_id, 2, 0, log_start_offset=2)
        third.at(topic_id, 2, 0, log_start_offset=1)
        assert await third.hear_one()
        assert await third.hears_nothing()
        assert not task.done()
        third.at(topic_id, 2, 0, log_start_offset=2)
        assert await task == (0, 2)


async def test_without_an_answer_in_time_it_says_so(node: StorageHarness) -> None:
    topic_id = await filled(node)
    handler = DeleteRecordsHandler(node.replicas)
    for timeout_ms in (0, 20):
        assert await delete(handler, topic_id, 1, timeout_ms) == (ErrorCode.request_timed_out, -1)
    replica = node.replica(topic_id)
    assert not replica.deletions._waiting
    assert replica.log is not None
    assert replica.log.log_start_offset == 1  # and it holds: the followers will hear of it


async def test_who_is_fenced_or_no_replica_any_more_is_not_waited_for(node: StorageHarness) -> None:
    topic_id = await filled(node)
    task = await deleting(node, topic_id, 1)
    node.apply(node_record(2, EPOCHS[2], fenced=True))
    await asyncio.sleep(0.01)
    assert not task.done()
    change(node, topic_id, replicas=(1, 2))
    assert await task == (0, 1)


async def test_who_is_eligible_is_waited_for_though_it_is_fenced(node: StorageHarness) -> None:
    topic_id = await filled(node)
    node.apply(node_record(2, EPOCHS[2], fenced=True), node_record(3, EPOCHS[3], fenced=True))
    change(node, topic_id, isr=(1,), eligible_leader_replicas=(2,))
    handler = DeleteRecordsHandler(node.replicas)
    assert await delete(handler, topic_id, 1, timeout_ms=20) == (ErrorCode.request_timed_out, -1)
    task = await deleting(node, topic_id, 1)
    change(node, topic_id, isr=(1,), eligible_leader_replicas=())
    assert await task == (0, 1)


async def test_a_leader_that_steps_down_says_so(node: StorageHarness) -> None:
    topic_id = await filled(node)
    task = await deleting(node, topic_id, 1)
    change(node, topic_id, leader=2, leader_epoch=1)
    assert await task == (ErrorCode.not_leader_or_follower, -1)


async def test_a_deletion_that_nobody_waits_for_is_forgotten(node: StorageHarness) -> None:
    topic_id = await filled(node)
    task = await deleting(node, topic_id, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not node.replica(topic_id).deletions._waiting


def start(nodes: Nodes, node_id: int) -> int:
    opened = nodes.replica(node_id).log
    assert opened is not None
    return opened.log_start_offset


async def test_the_next_leader_does_not_have_them(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 3) as nodes:
        leader = nodes.replica(1)
        for value in (b"a", b"b", b"c"):
            leader.appending.append(batch(value), 0, -1)
        await nodes.until_equal()
        handler = DeleteRecordsHandler(nodes.running[1].harness.replicas)
        assert await delete(handler, nodes.topic_id, 2) == (0, 2)
        assert [start(nodes, each) for each in nodes.ids] == [2, 2, 2]
        nodes.elect(2, (1, 2, 3))
        await nodes.until_equal()
        handler = DeleteRecordsHandler(nodes.running[2].harness.replicas)
        assert await delete(handler, nodes.topic_id, 1) == (0, 2)


async def test_a_follower_whose_own_retention_went_first_says_so(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        leader = nodes.replica(1)
        for value in (b"a", b"b"):
            leader.appending.append(batch(value), 0, -1)
        await nodes.until_equal()
        followed = nodes.replica(2).log
        assert followed is not None
        followed.maybe_increment_log_start_offset(2)
        handler = DeleteRecordsHandler(nodes.running[1].harness.replicas)
        assert await delete(handler, nodes.topic_id, 1) == (0, 1)


async def test_who_comes_back_hears_where_the_log_begins_before_it_is_in_sync(node: StorageHarness) -> None:
    """At once, not with the next news: it waits for that to get in sync."""
    topic_id = await filled(node)
    replica = node.replica(topic_id)
    assert replica.log is not None
    replica.log.maybe_increment_log_start_offset(2)
    async with Stream(streams_of(node), 2, EPOCHS[2]) as second:
        second.at(topic_id, 2, 0, log_start_offset=0)
        assert (await second.hear_one()).fields.log_start_offset == 2
        assert replica.leader is not None
        assert not replica.leader.waits_for(2)
        second.at(topic_id, 2, 0, log_start_offset=2)
        await until(lambda: replica.leader is not None and replica.leader.waits_for(2))
