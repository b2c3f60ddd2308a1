"""Absence is not an order: partitions that the metadata does not know are set aside, and come back as they were."""

from __future__ import annotations

import asyncio
import errno
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.log.checkpoints import offset_files
from barnabas.log.checkpoints.partition_metadata import ensure_topic_id
from barnabas.log.checkpoints.stray import StrayKey, parse_stray_name
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import partition_key, topic_key
from barnabas.storage import limits


def strays(data: Path) -> list[StrayKey]:
    keys = (parse_stray_name(path.name) for path in data.iterdir())
    return [key for key in keys if key is not None]


async def until_strays(node: StorageHarness, count: int) -> None:
    async with asyncio.timeout(20):
        while node.replicas.stray_count != count or not node.replicas.is_idle:
            await asyncio.sleep(0)


async def test_what_an_older_snapshot_does_not_name_is_kept_and_comes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        topic = await node.create_topic()
        for number in range(3):
            await node.append(topic, batch(b"%d" % number))
        node.snapshot()
        await until_strays(node, 1)
        assert node.replicas.find(topic.bytes, 0) is None
        assert strays(data) == [StrayKey(topic, 0)]
        assert (data / f"events-0.{topic.hex}-stray" / "00000000000000000000.log").stat().st_size > 0
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert node.replicas.stray_count == 0
        assert node.replica(topic).high_watermark == 3
        assert (await node.append(topic, batch(b"more"))).base_offset == 3
    assert strays(data) == []


async def test_a_stray_partition_keeps_where_its_log_starts_over_a_restart(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        for number in range(5):
            await node.append(topic, batch(b"%d" % number))
        log = node.replica(topic).log
        assert log is not None
        assert log.maybe_increment_log_start_offset(3)
        node.snapshot()
        await until_strays(node, 1)
    async with run_node(data, socket) as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        log = node.replica(topic).log
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert node.replica(topic).high_watermark == 5


async def test_a_day_later_a_stray_partition_is_deleted_also_over_a_restart(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        node.snapshot()
        await until_strays(node, 1)
        node.clock.advance(limits.STRAY_KEPT_MS - 1_000)
        await node.replicas.expire_strays()
        await until_strays(node, 1)
        set_aside = node.clock.now_ms()
    async with run_node(data, socket) as node:
        assert node.replicas.stray_count == 1
        node.clock.advance(set_aside - node.clock.now_ms() + 1_000)
        await node.replicas.expire_strays()
        await until_strays(node, 0)
        assert list(data.glob("events-0*")) == []
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        assert node.replica(topic).high_watermark == 0


async def test_a_topic_of_the_same_name_starts_empty_beside_the_stray_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        first = await node.create_topic()
        await node.append(first, batch(b"old"))
        node.snapshot()
        second = await node.create_topic()
        await until_strays(node, 1)
        assert (await node.append(second, batch(b"new"))).base_offset == 0
        assert strays(data) == [StrayKey(first, 0)]
        node.apply(node.deletion(first))
        await until_strays(node, 0)
        assert node.replicas.find(second.bytes, 0) is not None
        assert (data / "events-0").is_dir()


async def test_the_deletion_of_the_next_topic_of_its_name_takes_nothing_of_what_is_still_to_be_set_aside(
    tmp_path: Path,
) -> None:
    """That waits, as where a large topic is being deleted; the next one was never there."""
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        topic, second = await node.create_topic(), uuid.uuid4()
        await node.append(topic, batch(b"kept"))
        node.snapshot()
        node.snapshot(*topic_records("events", second))
        node.snapshot(node.deletion(second))
        async with asyncio.timeout(20):
            while not node.replicas.is_idle:
                await asyncio.sleep(0)
        assert strays(data) == [StrayKey(topic, 0)]
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert node.replica(topic).high_watermark == 1


async def test_a_deletion_that_is_learnt_later_deletes_what_was_set_aside(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        node.snapshot()
        await until_strays(node, 1)
    async with run_node(data, socket) as node:
        node.snapshot(node.deletion(topic))
        await until_strays(node, 0)
        assert list(data.glob("events-0*")) == []


async def test_a_topic_of_fewer_partitions_deletes_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        topic = await node.create_topic(partitions=3)
        node.snapshot(*topic_records("events", topic, 2))
        await until_strays(node, 1)
        assert strays(data) == [StrayKey(topic, 2)]
        records = [MetadataRecord(key=partition_key(topic.bytes, index)) for index in range(2)]
        node.apply(MetadataRecord(key=topic_key("events")), *records)
        await until_strays(node, 3)


async def test_a_partition_given_to_others_is_deleted_by_order_and_not_by_old_news(tmp_path: Path) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    elsewhere = {"leader": 2, "leader_epoch": 1, "replicas": (2,)}
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        other = await node.create_topic("other")
        node.apply(*topic_records("events", topic, **elsewhere))  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            while (data / "events-0").exists() or not node.replicas.is_idle:
                await asyncio.sleep(0)
        assert strays(data) == []
    async with run_node(data, socket) as node:
        # It has followed nothing yet: this may be the metadata of a backup from before the partition came here.
        node.snapshot(*topic_records("other", other, **elsewhere))  # type: ignore[arg-type]
        await until_strays(node, 1)


async def test_a_partition_that_cannot_be_closed_is_set_aside_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"a"))
        log = node.replica(topic).log
        assert log is not None

        def fail() -> None:
            raise KafkaError(ErrorCode.kafka_storage_error, "EIO")

        monkeypatch.setattr(log, "close", fail)
        node.snapshot()
        await until_strays(node, 1)
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert (await node.append(topic, batch(b"b"))).base_offset == 1


async def test_a_stray_partition_is_taken_back_where_it_lies(tmp_path: Path) -> None:
    """Its name had its place in another directory meanwhile."""
    first, second = tmp_path / "a", tmp_path / "b"
    async with run_node(first, tmp_path / "s", [second]) as node:
        topic = await node.create_topic()
        for number in range(3):
            await node.append(topic, batch(b"%d" % number))
        node.snapshot()
        await until_strays(node, 1)
        other = topic_records("other", uuid.uuid4())
        node.snapshot(*other)
        await node.until_open()
        same_name = uuid.uuid4()
        node.snapshot(*other, *topic_records("events", same_name))
        await node.until_open()
        assert (second / "events-0").is_dir()
        node.snapshot(*other, *topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        await until_strays(node, 1)
        assert (strays(first), strays(second)) == ([], [StrayKey(same_name, 0)])
        assert node.replica(topic).lane is node.lanes[str(first)]
        assert (await node.append(topic, batch(b"more"))).base_offset == 3
    async with run_node(first, tmp_path / "s", [second]) as node:
        node.snapshot(*other, *topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert node.replica(topic).high_watermark == 4


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_an_empty_log_that_took_a_stray_partition_s_place_makes_way(
    tmp_path: Path, is_elsewhere: bool
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    async with run_node(first, tmp_path / "s", [second]) as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"kept"))
        node.snapshot()
        await until_strays(node, 1)
    empty = (second if is_elsewhere else first) / "events-0"
    empty.mkdir()
    ensure_topic_id(node.files, str(empty), topic)
    (empty / "00000000000000000000.log").touch()
    async with run_node(first, tmp_path / "s", [second]) as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert (node.replicas.stray_count, (second / "events-0").exists()) == (0, False)
        assert (await node.append(topic, batch(b"more"))).base_offset == 1


async def test_a_stray_partition_that_is_known_again_is_kept_beside_what_took_its_place(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"kept"))
        node.snapshot()
        await until_strays(node, 1)
    stray = data / f"events-0.{topic.hex}-stray"
    shutil.copytree(stray, data / "events-0")
    async with run_node(data, tmp_path / "s") as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        node.clock.advance(2 * limits.STRAY_KEPT_MS)
        await node.replicas.expire_strays()
        await until_strays(node, 1)
        assert stray.is_dir()


async def test_what_was_set_aside_on_a_full_disk_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"kept"))
        write = offset_files.write_offsets

        def full(files: Files, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
            if strays(tmp_path / "data"):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(files, path, offsets)

        with monkeypatch.context() as patch:
            patch.setattr(offset_files, "write_offsets", full)
            node.snapshot()
            await until_strays(node, 1)
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        await node.until_open()
        assert (await node.append(topic, batch(b"more"))).base_offset == 1
