"""Which logs a node keeps as the metadata changes, and what it finds after a stop or a crash."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from storage_harness import NODE_ID, StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode
from barnabas.log.config import LogConfig
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import MetadataImage, topic_key
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.replica.replica import Replica


async def until_deleted(node: StorageHarness, path: Path) -> None:
    async with asyncio.timeout(20):
        while path.exists():
            await asyncio.sleep(0)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_finds_everything(tmp_path: Path, crash: bool) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket, crash=crash) as node:
        topic = await node.create_topic(partitions=3, leader_epoch=1)
        for index in range(3):
            for number in range(10):
                await node.append(topic, batch(b"%d" % number), index=index)
    async with run_node(data, socket) as node:
        assert not node.replica(topic).is_leader
        node.snapshot(*topic_records("events", topic, 3, leader_epoch=2))
        for index in range(3):
            replica = node.replica(topic, index)
            assert (replica.is_leader, replica.high_watermark) == (True, 10)
        assert (await node.append(topic, batch(b"more"), index=2)).base_offset == 10


async def test_a_torn_write_is_cut_off_after_a_crash(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket, crash=True) as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"whole"))
        await node.append(topic, batch(b"torn"))
    segment = data / "events-0" / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    async with run_node(data, socket) as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        assert node.replica(topic).high_watermark == 1
        assert (await node.append(topic, batch(b"next"))).base_offset == 1


@pytest.mark.parametrize("away", [False, True])
async def test_a_deleted_topic_goes_from_disk(tmp_path: Path, away: bool) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        kept = await node.create_topic("kept")
        if not away:
            node.apply(node.deletion(topic), MetadataRecord(key=topic_key("events")))
            await until_deleted(node, data / "events-0")
    if away:
        async with run_node(data, socket) as node:
            node.snapshot(node.deletion(topic), *topic_records("kept", kept))
            await until_deleted(node, data / "events-0")
    assert [path.name for path in data.glob("events-0*")] == []
    assert (data / "kept-0").is_dir()


async def test_a_deleted_topic_is_not_taken_for_one_that_is_still_to_come(tmp_path: Path) -> None:
    """A gateway hears of a deletion a moment later than the node; a client that tried again would look for a leader."""

    async def code(topic: uuid.UUID) -> int:
        return int((await node.append(topic, batch(b"late"))).error_code)

    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        first, second = await node.create_topic("first"), await node.create_topic("second")
        node.snapshot(*topic_records("second", second), node.deletion(first))
        assert await code(first) == ErrorCode.unknown_topic_or_partition
        node.snapshot(*topic_records("kept", uuid.uuid4()), node.deletion(second))
        assert await code(second) == ErrorCode.unknown_topic_or_partition
        assert await code(first) == ErrorCode.unknown_topic_id, "as far back as the controller remembers"


async def test_empty_or_foreign_metadata_takes_nothing_away(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        node.replicas.on_image(node.replicas.image, MetadataImage())
        assert node.replicas.find(topic.bytes, 0) is not None
        node.snapshot(node.deletion(topic), cluster_id="another-cluster-000000")
        assert node.replicas.find(topic.bytes, 0) is not None


async def test_a_topic_created_again_under_its_name_starts_empty(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    second = uuid.uuid4()
    async with run_node(data, socket) as node:
        first = await node.create_topic()
        await node.append(first, batch(b"old"))
        node.snapshot(*topic_records("events", second))
        await node.until_open()
        assert (await node.append(second, batch(b"new"))).base_offset == 0
    third = uuid.uuid4()
    async with run_node(data, socket) as node:
        # Deleted and created again while the node was down: what is on disk is stale.
        node.snapshot(*topic_records("events", third))
        await node.until_open()
        assert node.replica(third).high_watermark == 0
        assert node.replicas.find(second.bytes, 0) is None


async def test_partitions_of_other_nodes_are_not_kept(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        elsewhere = topic_records("events", topic, leader=2, leader_epoch=1, replicas=(2,))
        node.apply(*elsewhere)
        await until_deleted(node, tmp_path / "data" / "events-0")


async def test_the_change_of_one_partition_touches_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic(partitions=30)
        await node.create_topic("other", partitions=5)
        touched = []
        monkeypatch.setattr(Replica, "follow", lambda replica, _: touched.append(replica.name))
        monkeypatch.setattr(Replica, "update_settings", lambda replica, _: touched.append(replica.name))
        node.apply(*topic_records("events", topic, 30, leader_epoch=1)[7:8])
        assert len(touched) == 2
        assert len(set(touched)) == 1
        node.apply(topic_config("other", retention_ms="5"))
        assert len(touched) == 2 + 5


async def test_becoming_leader_of_many_partitions_takes_no_hand_over_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic(partitions=3)
        handed_over: list[object] = []
        monkeypatch.setattr(DirectoryLane, "submit", lambda _, work, *rest: handed_over.append(work))
        node.apply(*topic_records("events", topic, 3, leader_epoch=7)[:3])
        assert not handed_over
        for index in range(3):
            log = node.replica(topic, index).log
            assert log is not None
            assert log.latest().leader_epoch == 7


async def test_settings_reach_the_log(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        node.apply(topic_config("events", segment_bytes="2000000", retention_ms="5"))
        log = node.replica(topic).log
        assert log is not None
        assert (log.config.segment_bytes, log.config.retention_ms) == (2_000_000, 5)
        assert log.config.index_interval_bytes == LogConfig().index_interval_bytes


async def test_many_partitions_open_while_the_loop_runs(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = uuid.uuid4()
        node.apply(*topic_records("events", topic, 60))
        turns = 0
        async with asyncio.timeout(20):
            while not node.replicas.is_settled:
                turns += 1
                await asyncio.sleep(0)
        assert turns > 10
        assert all(node.replica(topic, index).is_leader for index in range(60))


async def test_a_log_that_cannot_be_opened_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        (tmp_path / "data" / "events-0").write_text("in the way")
        topic = uuid.uuid4()
        node.apply(*topic_records("events", topic, 2))
        await node.until_open()
        assert node.replica(topic, 0).is_offline
        assert (await node.append(topic, batch(b"a"), index=1)).error_code == 0
        (tmp_path / "data" / "events-0").unlink()


async def test_new_partitions_spread_over_the_log_directories(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    directories = LogDirectories.open(
        paths, "c" * 22, NODE_ID, seeded_environment(), producer_id_expiration_ms=1
    )
    topic = uuid.uuid4()
    for index in range(4):
        path = directories.claim("events", index, topic, is_new=True)
        directories.open_partition(path, "events", index, topic, LogConfig())
    directories.close({})
    counts = [len(list((tmp_path / name).glob("events-*"))) for name in ("a", "b")]
    assert counts == [2, 2]
