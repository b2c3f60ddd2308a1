"""Compacted topics are compacted, the dirtiest first; what fails harms nothing else."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from storage_harness import NOW_MS, StorageHarness, make_cleaning, run_node, topic_config

from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.log.checkpoints.checkpoint_file import CLEANER_OFFSET_FILE, read_offsets
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import config_key
from barnabas.records.batch import iterate_headers
from barnabas.records.record import decode_records, encode_batch
from barnabas.storage import limits
from barnabas.storage.upkeep import cleaning as upkeep_cleaning
from barnabas.storage.upkeep.cleaning_metrics import CleanerCollector


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def fill(node: StorageHarness, name: str, keys: bytes, **settings: str) -> uuid.UUID:
    topic = await node.create_topic(name)
    node.apply(topic_config(name, cleanup_policy="compact", **settings))
    for key in keys:
        batch = encode_batch([(NOW_MS, bytes([key]), b"v", ())])
        assert (await node.append(topic, batch)).error_code == 0
    log = node.replica(topic).log
    assert log is not None
    log.roll()
    return topic


async def offsets(node: StorageHarness, topic: uuid.UUID) -> list[int]:
    found: list[int] = []
    for position, header in iterate_headers(data := (await node.fetch(topic)).records):
        batch = data[position : position + header.size_in_bytes]
        found += [record.offset for record in decode_records(batch)]
    return found


async def test_the_dirtiest_log_comes_first_and_its_checkpoint_is_written(node: StorageHarness) -> None:
    clean = await fill(node, "clean", b"ab")
    cleaning = make_cleaning(node)
    assert await cleaning.clean_dirtiest()
    assert not await cleaning.clean_dirtiest()
    await node.append(clean, encode_batch([(NOW_MS, b"a", b"new" * 50, ())]))
    log = node.replica(clean).log
    assert log is not None
    log.roll()
    dirty = await fill(node, "dirty", b"aab")
    await fill(node, "kept", b"aab", min_compaction_lag_ms="1000", max_compaction_lag_ms="2000")
    assert await cleaning.clean_dirtiest()
    assert await offsets(node, dirty) == [1, 2]
    assert read_offsets(node.files, str(node.directory / CLEANER_OFFSET_FILE)) == {
        ("clean", 0): 2,
        ("dirty", 0): 3,
    }
    assert await cleaning.clean_dirtiest()
    assert await offsets(node, clean) == [1, 2]
    assert not await cleaning.clean_dirtiest()
    node.clock.advance(1_001)
    assert await cleaning.clean_dirtiest()
    assert cleaning.runs == 4


async def test_a_log_that_cannot_be_cleaned_is_left_alone(
    node: StorageHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(node, "bad", b"aa")
    good = await fill(node, "good", b"aa")
    path = node.directory / "bad-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    cleaning = make_cleaning(node)
    while await cleaning.clean_dirtiest():
        pass
    assert await offsets(node, good) == [1]
    assert list(cleaning.uncleanable) == [("bad", 0)]
    assert cleaning.runs == 1
    registry = CollectorRegistry()
    registry.register(CleanerCollector(cleaning, node.directories, node.clock))
    text = generate_latest(registry).decode()
    directory = f'{{logDirectory="{node.directory}"}}'
    for line in (
        f"kafka_log_logcleanermanager_uncleanable_partitions_count{directory} 1.0",
        f"kafka_log_logcleanermanager_uncleanable_bytes{directory} {float(len(content))}",
        "kafka_log_logcleanermanager_max_dirty_percent 0.0",
        "kafka_log_logcleaner_cleaner_recopy_percent 50.0",
        "barnabas_storage_cleaner_runs_total 1.0",
    ):
        assert line in text


@pytest.mark.parametrize("before", ["delete", "compact"])
async def test_a_log_is_not_cleaned_by_settings_that_it_had_before(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """They come to it in turn with its appends, and this topic is compacted, but for what is younger than a day."""
    monkeypatch.setattr(limits, "PROVEN_SECONDS", 0)  # appends go through the writer thread
    topic = await node.create_topic("t")
    node.apply(topic_config("t", cleanup_policy=before))
    replica = node.replica(topic)
    assert replica.log is not None
    assert replica.lane is not None
    for key in b"aab":
        await node.append(topic, encode_batch([(NOW_MS, bytes([key]), b"v", ())]))
    replica.log.roll()
    may_go_on = threading.Event()
    replica.lane.submit(lambda: may_go_on.wait(10), lambda *_: None)
    queued = node.send_append(topic, encode_batch([(NOW_MS, b"c", b"v", ())]))
    try:
        while replica.queue is None or not replica.queue.items:
            await asyncio.sleep(0)
        node.apply(topic_config("t", cleanup_policy="compact", min_compaction_lag_ms="86400000"))
        assert replica.log.config.min_compaction_lag_ms == 0, "it waits for its turn"
        assert not await make_cleaning(node).clean_dirtiest()
    finally:
        may_go_on.set()
    await queued
    assert await offsets(node, topic) == [0, 1, 2], "all of the closed segment"


async def test_without_a_limit_it_waits_for_nothing(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no time passes from one batch to the next, as far as the clock can tell."""
    monkeypatch.setattr(upkeep_cleaning, "machine_seconds", lambda: 5.0)
    topic = await fill(node, "events", b"aaab")
    cleaning = make_cleaning(node)
    try:
        async with asyncio.timeout(20):
            await cleaning.clean_dirtiest()
    finally:
        cleaning._stopping.set()
    assert await offsets(node, topic) == [2, 3]


async def test_it_runs_by_itself_at_the_clusters_pace_and_stops(node: StorageHarness) -> None:
    values = {"log.cleaner.backoff.ms": "0", "log.cleaner.io.max.bytes.per.second": "1"}
    key = config_key(BROKER_RESOURCE, "")
    topic = await fill(node, "events", b"aaab")
    node.apply(MetadataRecord(key=key, config=ConfigRecord(values={**values})))
    cleaning = make_cleaning(node)
    running = asyncio.create_task(cleaning.clean_dirtiest())
    task = asyncio.create_task(cleaning.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # At one byte a second this would take minutes: it ends because the node stops.
    async with asyncio.timeout(20):
        assert not await running
    assert await offsets(node, topic) == [0, 1, 2, 3]
    values["log.cleaner.io.max.bytes.per.second"] = "1e9"
    node.apply(MetadataRecord(key=key, config=ConfigRecord(values=values)))
    cleaning = make_cleaning(node)
    task = asyncio.create_task(cleaning.run())
    async with asyncio.timeout(20):
        while not cleaning.runs:
            node.clock.advance(100)
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await offsets(node, topic) == [2, 3]
