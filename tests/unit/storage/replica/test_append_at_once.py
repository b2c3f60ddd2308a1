"""Appends that are acknowledged when the call returns: what follows from them, and what is left to the other ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.kernel.clock import machine_seconds
from barnabas.storage.replica.replica import Replica


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


def prove_fast(replica: Replica) -> None:
    assert replica.lane is not None
    now = machine_seconds()
    replica.lane.on_append(now, now)


def at_once(replica: Replica, records: bytes = batch(b"v"), acks: int = -1) -> int | None:
    """The first offset, or None."""
    info = replica.appending.append_at_once(memoryview(records), acks)
    return None if info is None else info.base_offset


async def test_what_follows_from_it(node: StorageHarness) -> None:
    topic = await node.create_topic()
    replica = node.replica(topic)
    prove_fast(replica)
    waiting = asyncio.create_task(node.fetch(topic, 0, max_wait_ms=20_000))
    await node.until_waiting(1)
    assert [at_once(replica, batch(b"v", b"w")), at_once(replica, acks=1)] == [0, 2]
    assert (await waiting).high_watermark == 3
    assert replica.high_watermark == 3
    counts = replica.counts
    size = len(batch(b"v", b"w")) + len(batch(b"v"))
    assert (counts.appends, counts.messages_in, counts.bytes_in) == (2, 3, size)
    assert sum(counts.node.append_times.counts) == 2


async def test_a_repeated_batch_is_written_once(node: StorageHarness) -> None:
    replica = node.replica(await node.create_topic())
    prove_fast(replica)
    numbered = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    assert [at_once(replica, numbered), at_once(replica, numbered)] == [0, 0]
    assert (replica.high_watermark, replica.counts.appends, replica.counts.messages_in) == (1, 2, 1)


async def test_readers_hear_of_all_that_they_did_not_see(node: StorageHarness) -> None:
    """The high watermark lay behind the log's end: what comes then shows that too."""
    topic = await node.create_topic()
    replica = node.replica(topic)
    prove_fast(replica)
    assert replica.leader is not None
    replica.leader.is_alone, replica.leader.is_short = False, True
    assert (await node.append(topic, batch(b"v"), acks=1)).base_offset == 0
    assert replica.high_watermark == 0
    grown: list[int] = []
    purgatory: Any = node.purgatory
    purgatory.on_growth = lambda _, size_bytes: grown.append(size_bytes)
    replica.leader.is_alone, replica.leader.is_short = True, False
    watchers: Any = replica.watchers
    watchers["a fetch"] = 0
    assert at_once(replica) == 1
    assert (replica.high_watermark, grown) == (2, [2 * len(batch(b"v"))])
    assert at_once(replica) == 2
    assert (replica.high_watermark, grown[1:]) == (3, [len(batch(b"v"))])
    watchers.clear()


async def test_it_is_for_who_leads_alone_without_syncs_on_a_fast_disk(node: StorageHarness) -> None:
    topic = await node.create_topic()
    replica = node.replica(topic)
    assert at_once(replica) is None, "nothing is known of the disk"
    prove_fast(replica)
    assert at_once(replica, b"no batch") is None
    assert replica._durability is not None
    replica._durability.commit.is_pending = True
    assert at_once(replica) is None
    replica._durability.commit.is_pending = False
    queue: Any = replica.appending._queue
    queue.items["something"] = None
    assert at_once(replica) is None
    queue.items.clear()
    node.apply(topic_config("events", flush_messages="1"))
    assert at_once(replica) is None
    node.apply(topic_config("events"))
    assert at_once(replica) == 0
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(1, 2)))
    assert at_once(replica) is None
    assert (replica.high_watermark, replica.counts.appends) == (1, 1)
