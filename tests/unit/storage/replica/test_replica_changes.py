"""A replica's part in the cluster changes, or it ends, while appends and syncs of it are under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from storage_harness import StorageHarness, batch, topic_config, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.replica.replica import Replica

LONG_MS = 600_000


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def hold(monkeypatch: pytest.MonkeyPatch, replica: Replica, name: str, go: threading.Event) -> list[str]:
    """Calls of this method of the replica's log wait for `go`; returns those that have begun."""
    begun: list[str] = []
    method: Callable[..., Any] = getattr(replica.log, name)

    def held(*args: Any, **options: Any) -> Any:
        begun.append(name)
        go.wait(20)
        return method(*args, **options)

    monkeypatch.setattr(replica.log, name, held)
    return begun


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_append_is_not_acknowledged_when_somebody_else_led_meanwhile(
    threaded: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """Whoever led in between may have had it cut off; that this replica leads again does not bring it back."""
    node = threaded
    topic = await node.create_topic()
    begun = hold(monkeypatch, node.replica(topic), "append_as_leader", go)
    sent = node.send_append(topic, batch(b"a"), acks=acks, timeout_ms=LONG_MS)
    await until(lambda: begun)
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1))
    node.apply(*topic_records("events", topic, leader=1, leader_epoch=2))
    assert node.replica(topic).is_leader
    go.set()
    (result,) = (await sent).partitions
    assert result.error_code == int(ErrorCode.not_leader_or_follower)


async def test_an_append_is_acknowledged_when_the_same_leader_goes_on_under_a_new_epoch(
    threaded: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = threaded
    topic = await node.create_topic()
    begun = hold(monkeypatch, node.replica(topic), "append_as_leader", go)
    sent = node.send_append(topic, batch(b"a"), timeout_ms=LONG_MS)
    await until(lambda: begun)
    node.apply(*topic_records("events", topic, leader_epoch=1))
    go.set()
    assert (await sent).partitions[0].error_code == 0


async def test_a_sync_that_finds_the_log_deleted_is_no_failed_disk(
    node: StorageHarness,
    go: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    replica = node.replica(topic)
    begun = hold(monkeypatch, replica, "flush", go)
    sent = node.send_append(topic, batch(b"a"), timeout_ms=LONG_MS)
    await until(lambda: begun)
    node.snapshot(node.deletion(topic))
    assert (await sent).partitions[0].error_code == int(ErrorCode.unknown_topic_or_partition)
    await until(lambda: node.replicas.is_idle)
    go.set()
    assert replica.lane is not None
    await replica.lane.run(replica.lane.flush, lambda: None)
    await asyncio.sleep(0)
    assert (replica.is_offline, replica.error) == (False, int(ErrorCode.unknown_topic_or_partition))
    assert "disk failed" not in caplog.text


async def test_an_append_that_finds_the_log_deleted_is_no_refusal_of_its_directory(
    threaded: StorageHarness, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = threaded
    topic = await node.create_topic()
    lane = node.replica(topic).lane
    begun = hold(monkeypatch, node.replica(topic), "append_as_leader", go)
    sent = node.send_append(topic, batch(b"a"), timeout_ms=LONG_MS)
    await until(lambda: begun)
    node.snapshot(node.deletion(topic))
    await until(lambda: node.replicas.is_idle)
    go.set()
    assert (await sent).partitions[0].error_code != 0
    assert lane is not None
    assert not lane.is_unwell


async def test_each_sync_wakes_who_waits_for_what_it_made_visible(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two appends, a sync each: the first sync must not use up what the second will show."""
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    gates = [threading.Event(), threading.Event()]
    flush, done = PartitionLog.flush, 0

    def gated(log: PartitionLog) -> int:
        nonlocal done
        recovery_point, gate = flush(log), gates[done]
        done += 1
        gate.wait(20)
        return recovery_point

    monkeypatch.setattr(PartitionLog, "flush", gated)
    replica = node.replica(topic)
    sent = [node.send_append(topic, batch(b"first"))]
    await until(lambda: done == 1)
    sent.append(node.send_append(topic, batch(b"second")))
    await until(lambda: replica.counts.messages_in == 2)
    assert replica.high_watermark == 1
    waiting = node.connection.fetches.send(node.fetch_request(topic, 1, max_wait_ms=LONG_MS))
    await node.until_waiting(1)
    gates[0].set()
    gates[1].set()
    async with asyncio.timeout(20):
        assert b"second" in (await node.answer(waiting)).partitions[0].records
    for each in sent:
        assert (await each).partitions[0].error_code == 0
