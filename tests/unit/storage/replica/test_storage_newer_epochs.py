"""Logs that have seen newer leader epochs than restored metadata give out."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.controller_pb2 import SeenLeaderEpoch
from barnabas.metadata.leaders import LEADER_EPOCH_MAX
from barnabas.storage import limits

PARTITIONS = 3


class FakeController:
    """Keeps what it was told; `refusal` is its answer."""

    def __init__(self) -> None:
        self.told: list[list[SeenLeaderEpoch]] = []
        self.refusal = ""
        self.heard = asyncio.Event()

    async def tell(self, seen: Sequence[SeenLeaderEpoch]) -> str:
        self.told.append(list(seen))
        self.heard.set()
        return self.refusal

    async def until_told(self, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.told) < times:
                self.heard.clear()
                await self.heard.wait()


@contextlib.asynccontextmanager
async def asking(node: StorageHarness) -> AsyncIterator[FakeController]:
    controller = FakeController()
    task = asyncio.create_task(node.replicas.newer_epochs.run(controller.tell))
    try:
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def written(data: Path, socket: Path, leader_epoch: int) -> uuid.UUID:
    """A topic, with one record in each partition, whose logs have seen `leader_epoch`."""
    async with run_node(data, socket) as node:
        topic = await node.create_topic(partitions=PARTITIONS, leader_epoch=leader_epoch)
        for index in range(PARTITIONS):
            await node.append(topic, batch(b"before"), index=index)
    return topic


async def test_a_restored_backup_is_told_of_once_and_led_under_the_epoch_that_follows(tmp_path: Path) -> None:
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node, asking(node) as controller:
        assert node.replicas.newer_epochs.is_empty
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=3))
        assert not node.replicas.newer_epochs.is_empty
        refused = await node.append(topic, batch(b"too early"))
        assert refused.error_code == ErrorCode.not_leader_or_follower
        assert (await node.fetch(topic)).records, "what is there can be read meanwhile"
        await controller.until_told(1)
        assert [(seen.topic_id, seen.partition, seen.leader_epoch) for seen in controller.told[0]] == [
            (topic.bytes, index, 7) for index in range(PARTITIONS)
        ]
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=8), revision=1_001)
        assert node.replicas.newer_epochs.is_empty
        for index in range(PARTITIONS):
            assert (await node.append(topic, batch(b"after"), index=index)).base_offset == 1
        log = node.replica(topic).log
        assert log is not None
        assert [entry.epoch for entry in log.epochs.entries] == [7, 8]
    assert len(controller.told) == 1


async def test_what_the_controller_does_not_do_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NEWER_EPOCHS_RETRY_SECONDS_MIN", 0.0)
    monkeypatch.setattr(limits, "NEWER_EPOCHS_RETRY_SECONDS_MAX", 0.0)
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node, asking(node) as controller:
        controller.refusal = "no controller is active"
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=3))
        await controller.until_told(3)
        assert controller.told[2] == controller.told[0]


async def test_one_call_carries_so_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NEWER_EPOCHS_PER_CALL", 2)
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node, asking(node) as controller:
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=3))
        await controller.until_told(2)
        assert [[seen.partition for seen in told] for told in controller.told] == [[0, 1], [2]]


async def test_a_partition_without_a_leader_is_told_of_too(tmp_path: Path) -> None:
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node, asking(node) as controller:
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader=-1, leader_epoch=3))
        await controller.until_told(1)
        assert len(controller.told[0]) == PARTITIONS


async def test_a_stray_partition_that_is_taken_back_is_told_of(tmp_path: Path) -> None:
    """A backup from before the topic grew sets partitions aside; when it grows again they come back with old epochs."""
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node, asking(node) as controller:
        node.snapshot(*topic_records("events", topic, 1, leader_epoch=8))
        async with asyncio.timeout(20):
            while not node.replicas.is_idle:
                await asyncio.sleep(0)
        assert node.replicas.stray_count == PARTITIONS - 1
        node.snapshot(
            *topic_records("events", topic, 1, leader_epoch=8)[:1],
            *topic_records("events", topic, PARTITIONS, leader_epoch=0)[1:],
            revision=1_001,
        )
        await controller.until_told(1)
        told = {seen.partition: seen.leader_epoch for batch in controller.told for seen in batch}
        assert set(told) <= {1, 2}
        assert set(told.values()) == {7}


async def test_a_deleted_partition_is_not_asked_for(tmp_path: Path) -> None:
    topic = await written(tmp_path / "data", tmp_path / "s", 7)
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=3))
        node.snapshot(node.deletion(topic), revision=1_001)
        assert node.replicas.newer_epochs.is_empty


async def test_a_damaged_epoch_holds_up_nothing_but_its_own_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await written(tmp_path / "data", tmp_path / "s", LEADER_EPOCH_MAX + 1)
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        node.snapshot(*topic_records("events", topic, PARTITIONS, leader_epoch=3))
        assert node.replicas.newer_epochs.is_empty, "the node is ready all the same"
        assert "cannot be right" in caplog.text
        assert (await node.append(topic, batch(b"never"))).error_code == ErrorCode.not_leader_or_follower
        assert (await node.fetch(topic)).records
