"""A node that comes back with an empty disk leads nothing that others have a copy of."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, change, node_record
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.storage import limits

TOPIC = uuid.UUID(int=7)


def records_of(replicas: tuple[int, ...], partitions: int = 1, leader_epoch: int = 0) -> list[object]:
    nodes = [node_record(each, epoch) for each, epoch in EPOCHS.items()]
    topic = topic_records("events", TOPIC, partitions, replicas=replicas, leader_epoch=leader_epoch)
    return [*nodes, *topic]


async def began_and_lost(place: tuple[Path, Path], replicas: tuple[int, ...]) -> None:
    async with run_node(*place) as node:
        node.snapshot(revision=1)  # what was known before there was the topic
        node.apply(*records_of(replicas))
        await node.until_open()
        await node.append(TOPIC, batch(b"a"), acks=1)
    shutil.rmtree(place[0] / "events-0")


async def settle(node: StorageHarness) -> None:
    await asyncio.sleep(0.05)


async def test_a_lost_log_is_not_led_and_serves_again_as_a_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REOPEN_SECONDS_MIN", 0.01)
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place, (1, 2, 3))
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await settle(node)
        replica = node.replica(TOPIC)
        assert replica.is_offline
        assert (await node.append(TOPIC, batch(b"b"), acks=1)).error_code == ErrorCode.kafka_storage_error
        assert not (place[0] / "events-0").exists()
        change(node, TOPIC, leader=2, leader_epoch=2)
        async with asyncio.timeout(5):
            while replica.log is None:
                await asyncio.sleep(0.01)
        assert not replica.is_offline
        assert not replica.is_leader


async def test_without_another_replica_it_begins_anew(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place, (1,))
    async with run_node(*place) as node:
        node.snapshot(*records_of((1,), leader_epoch=1))
        await node.until_open()
        assert (await node.append(TOPIC, batch(b"b"))).base_offset == 0


async def test_partitions_that_come_while_it_runs_begin(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place) as node:
        node.snapshot(revision=1)
        node.apply(*records_of((1, 2, 3)))
        await node.until_open()
        node.apply(*records_of((1, 2, 3), partitions=2))
        await node.until_open()
        for index in (0, 1):
            assert (await node.append(TOPIC, batch(b"a"), index=index, acks=1)).error_code == 0


async def test_partitions_that_were_made_with_its_registration_begin(tmp_path: Path) -> None:
    """They stand in the first metadata that it hears of, and it leads them under their first epoch."""
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3)))
        await node.until_open()
        assert (await node.append(TOPIC, batch(b"a"), acks=1)).error_code == 0
