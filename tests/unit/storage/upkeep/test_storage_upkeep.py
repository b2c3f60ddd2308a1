"""Retention, checkpoints, producers, and the metrics of a node."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from storage_harness import NOW_MS, StorageHarness, batch, make_upkeep, run_node, topic_config, topic_records

from barnabas.kernel.config import ConfigError
from barnabas.kernel.files import Files
from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.log.checkpoints import offset_files
from barnabas.log.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    PartitionKey,
    read_offsets,
    write_offsets,
)
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.log.small_files import SyncError
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import config_key
from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS
from barnabas.storage.config import StorageConfig
from barnabas.storage.metrics import StorageCollector


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def test_retention_deletes_what_is_too_old(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"old", timestamp=NOW_MS))
    node.apply(topic_config("events", retention_ms="1000"))
    upkeep = make_upkeep(node)
    assert await upkeep.apply_retention() == 0
    node.clock.advance(2_000)
    assert await upkeep.apply_retention() == 1
    result = await node.fetch(topic, 1)
    assert (result.error_code, result.log_start_offset, result.high_watermark) == (0, 1, 1)


async def test_checkpoints_are_written(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    await node.append(topic, batch(b"a", b"b"), index=1)
    upkeep = make_upkeep(node)
    await upkeep.write_high_watermarks()
    written = read_offsets(node.files, str(node.directory / HIGH_WATERMARK_FILE))
    assert written == {("events", 0): 0, ("events", 1): 2}
    log = node.replica(topic, 1).log
    assert log is not None
    log.flush()
    await upkeep.write_checkpoints()
    # One less, so that a crash has the indexes of this segment built anew.
    assert read_offsets(node.files, str(node.directory / RECOVERY_POINT_FILE))["events", 1] == 1


async def test_high_watermarks_are_written_when_one_has_moved(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, upkeep = await node.create_topic(partitions=2), make_upkeep(node)
    await upkeep.write_high_watermarks()
    write, written = node.directories.write_checkpoints, list[dict[PartitionKey, int]]()

    def noted(path: str, high_watermarks: dict[PartitionKey, int]) -> bool:
        written.append(high_watermarks)
        return write(path, high_watermarks)

    monkeypatch.setattr(node.directories, "write_checkpoints", noted)
    await upkeep.write_high_watermarks()
    assert written == []
    await node.append(topic, batch(b"a"), index=1)
    for _ in range(2):
        await upkeep.write_high_watermarks()
    assert written == [{("events", 0): 0, ("events", 1): 1}], "and not again for nothing"
    others = await node.create_topic("others")
    await upkeep.write_high_watermarks()
    assert written[1:] == [{("events", 0): 0, ("events", 1): 1, ("others", 0): 0}]
    node.snapshot(*topic_records("events", topic, 2), node.deletion(others, "others"))
    await node.until_open()
    await upkeep.write_high_watermarks()
    assert written[2:] == [{("events", 0): 0, ("events", 1): 1}], "what is gone is written down no more"


@pytest.mark.parametrize("refused", [LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE])
async def test_what_the_disk_refused_is_written_the_next_time(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    topic, upkeep = await node.create_topic(), make_upkeep(node)
    await upkeep.write_high_watermarks()
    await node.append(topic, batch(b"a", b"b"))
    opened = node.replica(topic).log
    assert opened is not None
    opened.flush()
    opened.maybe_increment_log_start_offset(1)  # so that each of the files has something new to say

    def refuses(files: Files, path: str, offsets: Mapping[PartitionKey, int]) -> None:
        if path.endswith(refused):
            raise OSError(errno.ENOSPC, "full")
        write_offsets(files, path, offsets)

    with monkeypatch.context() as patch:
        patch.setattr(offset_files, "write_offsets", refuses)
        await upkeep.write_high_watermarks()
    await upkeep.write_high_watermarks()
    for name, offset in ((LOG_START_OFFSET_FILE, 1), (HIGH_WATERMARK_FILE, 2), (RECOVERY_POINT_FILE, 1)):
        assert read_offsets(node.files, str(node.directory / name)) == {("events", 0): offset}, name


async def test_what_moves_while_high_watermarks_are_written_is_written_the_next_time(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, upkeep = await node.create_topic(), make_upkeep(node)
    write, is_writing, may_go_on = node.directories.write_checkpoints, threading.Event(), threading.Event()

    def slow(path: str, high_watermarks: dict[PartitionKey, int]) -> bool:
        is_writing.set()
        may_go_on.wait(10)
        return write(path, high_watermarks)

    monkeypatch.setattr(node.directories, "write_checkpoints", slow)
    writing = asyncio.ensure_future(upkeep.write_high_watermarks())
    while not is_writing.is_set():
        await asyncio.sleep(0)
    await node.append(topic, batch(b"a"))
    may_go_on.set()
    await writing
    await upkeep.write_high_watermarks()
    path = str(node.directory / HIGH_WATERMARK_FILE)
    assert read_offsets(node.files, path) == {("events", 0): 1}


async def test_a_stop_writes_what_somebody_else_has_removed(tmp_path: Path) -> None:
    """The marker of a clean shutdown vouches for them."""
    files = (LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE)
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        await node.append(await node.create_topic(), batch(b"a"))
        upkeep = make_upkeep(node)
        await upkeep.write_high_watermarks()
        for name in files:
            (node.directory / name).unlink()
    assert {path.name for path in (tmp_path / "data").iterdir()} >= {*files}


async def test_what_recovery_checked_is_synced_once_the_node_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (tmp_path / "data", tmp_path / "s")
    async with run_node(*place, crash=True) as node:
        topic = await node.create_topic(partitions=3)
        for index in (0, 1):
            await node.append(topic, batch(b"a", b"b"), index=index)
    async with run_node(*place, crash=True) as node:
        logs = [node.replica(topic, index).log for index in range(3)]
        assert [log and (log.recovery_report.segments_checked, log.recovery_point) for log in logs] == [
            (1, 0)
        ] * 3
        synced: list[str] = []
        monkeypatch.setattr(
            "barnabas.storage.directories.log_directories.sync_file_system",
            lambda _, path: synced.append(path),
        )
        upkeep = make_upkeep(node)
        assert await upkeep.flush_recovered() == 2
        assert synced == [str(node.directory)]
        assert read_offsets(node.files, str(node.directory / RECOVERY_POINT_FILE))["events", 1] == 1
        assert await upkeep.flush_recovered() == 0
    async with run_node(*place) as node:
        logs = [node.replica(topic, index).log for index in range(3)]
        assert [log and log.recovery_point for log in logs] == [1, 1, 0]


async def test_indexes_that_a_crash_may_have_spoiled_are_built_before_a_stop_has_to(tmp_path: Path) -> None:
    place = (tmp_path / "data", tmp_path / "s")
    async with run_node(*place, crash=True) as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"a"))
        log = node.replica(topic).log
        assert log is not None
        log.roll()
        log.flush_finished()
        await make_upkeep(node).write_checkpoints()
    async with run_node(*place) as node:
        log = node.replica(topic).log
        assert log is not None
        assert log.has_doubtful_indexes
        assert await make_upkeep(node).flush_recovered() == 1
        assert not log.has_doubtful_indexes
        assert await make_upkeep(node).flush_recovered() == 0


async def test_a_file_system_that_cannot_be_synced_leaves_the_logs_to_say_whether_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (tmp_path / "data", tmp_path / "s")
    async with run_node(*place, crash=True) as node:
        topic = await node.create_topic(partitions=2)
        for index in (0, 1):
            await node.append(topic, batch(b"a", b"b"), index=index)
    async with run_node(*place, crash=True) as node:
        bad, good = (node.replica(topic, index).log for index in range(2))
        assert bad is not None
        assert good is not None

        def refuse(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr("barnabas.storage.directories.log_directories.sync_file_system", refuse)
        monkeypatch.setattr(SegmentFile, "sync", _failing_sync(bad.directory))
        assert await make_upkeep(node).flush_recovered() == 1
        assert (bad.recovery_point, good.recovery_point) == (0, 2)
        recovery_points = read_offsets(node.files, str(node.directory / RECOVERY_POINT_FILE))
        assert (recovery_points["events", 0], recovery_points["events", 1]) == (0, 1)
        await asyncio.sleep(0)  # it was found in a thread
        assert [node.replica(topic, index).is_offline for index in range(2)] == [True, False]


def _failing_sync(directory: str) -> Callable[[SegmentFile], None]:
    real = SegmentFile.sync

    def sync(file: SegmentFile) -> None:
        if file.path.startswith(directory):
            raise SyncError(errno.EIO, os.strerror(errno.EIO))
        real(file)

    return sync


async def test_idle_producers_are_forgotten(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a", producer_id=3, producer_epoch=0, base_sequence=0))
    upkeep = make_upkeep(node)
    assert await upkeep.expire_producers() == 0
    node.clock.advance(86_400_001)
    assert await upkeep.expire_producers() == 1


async def test_idle_producers_are_forgotten_as_soon_as_the_cluster_says(node: StorageHarness) -> None:
    topic = await node.create_topic()
    await node.append(topic, batch(b"a", producer_id=3, producer_epoch=0, base_sequence=0))
    node.clock.advance(1_001)
    upkeep = make_upkeep(node)
    assert await upkeep.expire_producers() == 0
    values = {"producer.id.expiration.ms": "1000"}
    node.apply(MetadataRecord(key=config_key(BROKER_RESOURCE, ""), config=ConfigRecord(values=values)))
    assert await upkeep.expire_producers() == 1


def test_a_nodes_file_is_told_where_it_differs_from_kafkas_defaults() -> None:
    config = StorageConfig(
        node_id=1,
        log_dirs=("/a", "/b"),
        controllers=("127.0.0.1:1",),
        log_cleaner_enable=False,
        broker_settings={"num.partitions": "1", "log.retention.hours": "5"},
    )
    assert config.static_settings == {
        **OTHER_DEFAULTS,
        "node.id": "1",
        "log.dirs": "/a,/b",
        "log.cleaner.enable": "false",
        "num.partitions": "1",
        "log.retention.hours": "5",
    }


async def test_metrics_have_kafkas_names(node: StorageHarness) -> None:
    topic = await node.create_topic(partitions=2)
    records = batch(b"a", b"b")
    await node.append(topic, records)
    await node.fetch(topic)
    registry = CollectorRegistry()
    registry.register(StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory))
    text = generate_latest(registry).decode()
    for line in (
        'kafka_server_brokertopicmetrics_messagesin_total{topic="events"} 2.0',
        f'kafka_server_brokertopicmetrics_bytesin_total{{topic="events"}} {float(len(records))}',
        f'kafka_server_brokertopicmetrics_bytesout_total{{topic="events"}} {float(len(records))}',
        f'kafka_log_log_size{{partition="0",topic="events"}} {float(len(records))}',
        'kafka_log_log_logendoffset{partition="0",topic="events"} 2.0',
        "kafka_server_replicamanager_leadercount 2.0",
        "kafka_server_replicamanager_partitioncount 2.0",
        'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 0.0',
        'kafka_server_brokertopicmetrics_totalproducerequests_total{topic="events"} 1.0',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"node_id": -1}, "node.id"),
        ({"log_dirs": ()}, "log.dirs"),
        ({"log_dirs": ("/a", "/a")}, "log.dirs"),
        ({"controllers": ()}, "controllers"),
        ({"fetch_max_bytes": 0}, "fetch.max.bytes"),
        ({"listen_address": "0.0.0.0:19092"}, "advertised.address"),
        ({"broker_settings": {"num.partition": "1"}}, "did you mean num.partitions?"),
        ({"broker_settings": {"num.partitions": "0"}}, "num.partitions"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changed: dict[str, object], named: str) -> None:
    good: dict[str, object] = {"node_id": 1, "log_dirs": ("/a",), "controllers": ("127.0.0.1:1",)}
    StorageConfig(**good)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=re.escape(named)):
        StorageConfig(**{**good, **changed})  # type: ignore[arg-type]
