"""Replicas whose logs cannot be used: the controller hears of them until the metadata show it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.partition_log import PartitionLog
from barnabas.messages.controller_pb2 import ReplicaReport
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.storage import limits

FAILURE = OSError("the disk failed")
Told = list[tuple[int, bool]]
"""(partition, offline) of each."""


class FakeController:
    """Keeps what it was told; `refusal` is its answer, which waits while `goes_on` is not set."""

    def __init__(self, node: StorageHarness) -> None:
        self.told: list[Told] = []
        self.refusal = ""
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._reports = node.replicas.reports

    async def tell(self, reports: Sequence[ReplicaReport]) -> str:
        self.told.append([(each.partition, each.offline) for each in reports])
        await self.goes_on.wait()
        return self.refusal

    async def until_told(self, times: int) -> list[Told]:
        async with asyncio.timeout(20):
            while len(self.told) < times:
                await asyncio.sleep(0)
        return self.told

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._reports.run(self.tell))
        try:
            yield
            for _ in range(20):
                await asyncio.sleep(0)  # whatever more there is to tell
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def show(node: StorageHarness, topic: uuid.UUID, offline: Iterable[int], partitions: int = 1) -> None:
    """The metadata say of these partitions that this node cannot use its log."""
    records = topic_records("events", topic, partitions, replicas=(1, 2, 3), leader=2, leader_epoch=1)
    for index in offline:
        records[index].partition.offline_replicas.append(1)
    node.apply(*records)


async def make_topic(node: StorageHarness, partitions: int = 1) -> uuid.UUID:
    return await node.create_topic(partitions=partitions, replicas=(1, 2, 3))


async def test_a_failed_disk_is_told_once_where_others_can_lead(node: StorageHarness) -> None:
    topic = await make_topic(node, 3)
    alone = await node.create_topic("alone")
    controller = FakeController(node)
    async with controller.listening():
        for index in (0, 2):
            node.replica(topic, index).go_offline(FAILURE)
        node.replica(alone).go_offline(FAILURE)
        assert await controller.until_told(1) == [[(0, True), (2, True)]]
        show(node, topic, (0, 2), partitions=3)
    assert len(controller.told) == 1


async def test_what_comes_meanwhile_is_told_at_once(node: StorageHarness) -> None:
    topic = await make_topic(node, 2)
    controller = FakeController(node)
    async with controller.listening():
        node.replica(topic, 0).go_offline(FAILURE)
        await controller.until_told(1)
        for _ in range(10):
            await asyncio.sleep(0)
        node.replica(topic, 1).go_offline(FAILURE)
        assert await controller.until_told(2) == [[(0, True)], [(1, True)]]


async def test_what_the_controller_did_not_take_or_the_metadata_do_not_show_is_told_again(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REPORT_RETRY_SECONDS_MIN", "REPORT_RETRY_SECONDS_MAX", "REPORT_SHOWN_SECONDS_MAX"):
        monkeypatch.setattr(limits, name, 0.0)
    topic = await make_topic(node)
    controller = FakeController(node)
    controller.refusal = "no controller is active"
    async with controller.listening():
        node.replica(topic).go_offline(FAILURE)
        await controller.until_told(2)
        controller.refusal = ""
        told = await controller.until_told(len(controller.told) + 3)
        assert all(each == [(0, True)] for each in told)
        show(node, topic, (0,))
        count = len(told)
    assert len(controller.told) == count


async def test_metadata_that_come_to_say_otherwise_are_put_right(node: StorageHarness) -> None:
    """Another controller may know an older record of the partition, or of the node's process before this one."""
    topic = await make_topic(node)
    controller = FakeController(node)
    async with controller.listening():
        node.replica(topic).go_offline(FAILURE)
        await controller.until_told(1)
        show(node, topic, (0,))
        show(node, topic, ())
        assert await controller.until_told(2) == [[(0, True)], [(0, True)]]


async def test_a_log_that_opens_later_is_told_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REOPEN_SECONDS_MIN", 0.01)
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place) as node:
        topic = await make_topic(node)
        await node.append(topic, batch(b"a"), acks=1)
    real = PartitionLog.open

    def refuse(*_: object, **__: object) -> PartitionLog:
        raise KafkaError(ErrorCode.kafka_storage_error, "") from FAILURE

    monkeypatch.setattr(PartitionLog, "open", refuse)
    async with run_node(*place) as node:
        node.snapshot(*topic_records("events", topic, replicas=(1, 2, 3)))
        await node.until_open()
        controller = FakeController(node)
        async with controller.listening():
            assert await controller.until_told(1) == [[(0, True)]]
            show(node, topic, (0,))
            monkeypatch.setattr(PartitionLog, "open", real)
            async with asyncio.timeout(20):
                while node.replica(topic).is_offline:
                    node.clock.advance(1_000)
                    await asyncio.sleep(0.01)
            assert await controller.until_told(2) == [[(0, True)], [(0, False)]]


async def test_one_that_changes_while_it_is_told_is_told_as_it_is_then(node: StorageHarness) -> None:
    topic = await make_topic(node)
    replica = node.replica(topic)
    controller = FakeController(node)
    controller.goes_on.clear()
    async with controller.listening():
        replica.go_offline(FAILURE)
        await controller.until_told(1)
        replica.is_offline = False
        node.replicas.reports.look_at(replica)
        controller.goes_on.set()
        show(node, topic, (0,))
        assert await controller.until_told(2) == [[(0, True)], [(0, False)]]


async def test_a_partition_that_left_is_not_told_of(node: StorageHarness) -> None:
    topic = await make_topic(node)
    replica = node.replica(topic)
    controller = FakeController(node)
    replica.go_offline(FAILURE)
    records: list[MetadataRecord] = topic_records("events", topic, replicas=(2, 3), leader=2, leader_epoch=1)
    node.apply(*records)
    replica.go_offline(FAILURE)
    async with controller.listening():
        pass
    assert controller.told == []


async def test_one_call_carries_so_many(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPORTS_PER_CALL", 2)
    topic = await make_topic(node, 3)
    controller = FakeController(node)
    for index in range(3):
        node.replica(topic, index).go_offline(FAILURE)
    async with controller.listening():
        assert await controller.until_told(2) == [[(0, True), (1, True)], [(2, True)]]


async def test_an_offline_leader_answers_nothing_as_leader(node: StorageHarness) -> None:
    topic = await make_topic(node)
    node.replica(topic).go_offline(FAILURE)
    node.apply(*topic_records("events", topic, replicas=(1, 2, 3), leader_epoch=1))
    assert not node.replica(topic).is_leader
    assert (await node.append(topic, batch(b"a"), acks=1)).error_code == ErrorCode.kafka_storage_error
