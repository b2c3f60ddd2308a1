"""What a node counts of its topics, and what it says of its replicas."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from storage_harness import StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.kernel import metrics_page
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.metrics_page import render
from barnabas.log.flush_times import FlushTimes
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import metrics as storage_metrics
from barnabas.storage.counts import NodeCounts
from barnabas.storage.metrics import StorageCollector

TOPICS, REPLICAS = "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


class Shown:
    """A node's metrics, read anew for each value."""

    def __init__(self, node: StorageHarness) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory))

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, labels)


def test_a_partition_that_goes_takes_nothing_out_of_its_topics_counts() -> None:
    counts = NodeCounts(FlushTimes())
    first, second = counts.add_partition("t"), counts.add_partition("t")
    assert first is second
    first.messages_in += 5
    counts.remove_partition("t")
    assert counts.topics["t"].messages_in == 5
    counts.remove_partition("t")
    assert counts.topics == {}


async def test_appends_and_reads_of_a_topic(node: StorageHarness) -> None:
    shown, topic = Shown(node), await node.create_topic(partitions=2)
    await node.append(topic, batch(b"a", b"b"))
    await node.append(topic, batch(b"c"), index=1)
    bad = bytearray(batch(b"d"))
    bad[-1] ^= 1
    refused = await node.append(topic, bytes(bad))
    assert refused.error_code == int(ErrorCode.corrupt_message)
    await node.fetch(topic)
    assert shown(f"{TOPICS}messagesin_total", topic="events") == 3
    assert shown(f"{TOPICS}totalproducerequests_total", topic="events") == 3
    assert shown(f"{TOPICS}failedproducerequests_total", topic="events") == 0, "the client's fault"
    assert shown(f"{TOPICS}bytesrejected_total", topic="events") == len(bad)
    assert shown("barnabas_storage_refused_appends_total", error="CORRUPT_MESSAGE") == 1
    assert shown(f"{TOPICS}totalfetchrequests_total", topic="events") == 1
    assert shown("barnabas_storage_append_seconds_count") == 2
    assert shown("barnabas_storage_read_seconds_count") == 1


async def test_a_deleted_topic_has_no_series(node: StorageHarness) -> None:
    shown, topic = Shown(node), await node.create_topic(partitions=2)
    await node.append(topic, batch(b"a"))
    node.snapshot()
    assert shown(f"{TOPICS}messagesin_total", topic="events") is None
    assert shown("kafka_log_log_size", topic="events", partition="0") is None
    assert shown(f"{REPLICAS}partitioncount") == 0


async def test_reads_for_coordinators_are_not_those_of_clients(node: StorageHarness) -> None:
    shown, topic = Shown(node), await node.create_topic()
    await node.append(topic, batch(b"a"))
    inside = GrpcNetwork().connect_storage(node.address, reads_for_clients=False)
    try:
        result = await inside.fetches.send(node.fetch_request(topic))
        assert result.partitions[0].records
        assert shown(f"{TOPICS}bytesout_total", topic="events") == 0
    finally:
        await inside.close()
    await node.fetch(topic)
    assert shown(f"{TOPICS}bytesout_total", topic="events") == len(result.partitions[0].records)


async def test_replicas_that_are_away(node: StorageHarness) -> None:
    shown, topic = Shown(node), uuid.uuid4()
    records = topic_records("events", topic, replicas=(1, 2, 3))
    node.apply(*records, topic_config("events", min_insync_replicas="2"))
    await node.until_open()

    def gauges() -> tuple[float | None, ...]:
        names = ("underreplicatedpartitions", "atminisrpartitioncount", "underminisrpartitioncount")
        return tuple(shown(REPLICAS + name) for name in names)

    assert gauges() == (0, 0, 0)
    for isr, expected in (((1, 2), (1, 1, 0)), ((1,), (1, 0, 1)), ((1, 2, 3), (0, 0, 0))):
        changed = topic_records("events", topic, replicas=(1, 2, 3))
        changed[0].partition.isr[:] = isr
        node.apply(*changed)
        assert gauges() == expected
    assert (shown(f"{REPLICAS}isrshrinks_total"), shown(f"{REPLICAS}isrexpands_total")) == (2, 1)


async def test_replicas_that_are_being_added_are_not_missed(node: StorageHarness) -> None:
    shown, topic = Shown(node), uuid.uuid4()
    growing = topic_records("events", topic, replicas=(1, 2, 3))
    growing[0].partition.adding_replicas[:] = [2, 3]
    growing[0].partition.isr[:] = [1]
    node.apply(*growing, topic_config("events", min_insync_replicas="2"))
    await node.until_open()
    for name in ("underreplicatedpartitions", "atminisrpartitioncount", "underminisrpartitioncount"):
        assert shown(REPLICAS + name) == 0


async def test_reassignments_and_refused_changes_of_the_isr(node: StorageHarness) -> None:
    shown, topic = Shown(node), uuid.uuid4()
    node.apply(*topic_records("events", topic, replicas=(1, 2)))
    await node.until_open()
    assert shown(f"{REPLICAS}reassigningpartitions") == 0
    moved = topic_records("events", topic, replicas=(1, 2, 3))
    moved[0].partition.adding_replicas[:] = [3]
    node.apply(*moved)
    assert shown(f"{REPLICAS}reassigningpartitions") == 1
    assert shown(f"{REPLICAS}failedisrupdates_total") == 0
    node.replicas.isr_changes.failures += 1
    assert shown(f"{REPLICAS}failedisrupdates_total") == 1


async def test_a_failed_disk_is_a_replica_that_is_away(node: StorageHarness) -> None:
    shown, topic = Shown(node), await node.create_topic()
    replica = node.replica(topic)
    replica.go_offline(OSError("no disk"))
    assert (await node.append(topic, batch(b"a"))).error_code == int(ErrorCode.kafka_storage_error)
    assert (await node.fetch(topic)).error_code == int(ErrorCode.kafka_storage_error)
    for name in ("offlinereplicacount", "underreplicatedpartitions", "underminisrpartitioncount"):
        assert shown(REPLICAS + name) == 1
    assert shown(f"{REPLICAS}leadercount") == 0
    assert shown(f"{TOPICS}failedproducerequests_total", topic="events") == 1
    assert shown(f"{TOPICS}failedfetchrequests_total", topic="events") == 1


async def test_syncs_are_timed(node: StorageHarness) -> None:
    topic = await node.create_topic()
    node.apply(topic_config("events", flush_messages="1"))
    before = sum(node.directories.flush_times.histogram.counts)
    await node.append(topic, batch(b"a"))
    assert sum(node.directories.flush_times.histogram.counts) > before


async def test_a_scrape_goes_on_while_topics_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "PIECE_SECONDS", 0)
    monkeypatch.setattr(storage_metrics, "LOGS_AT_ONCE", 3)
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        kept = await node.create_topic("kept", partitions=10)
        gone = await node.create_topic("gone", partitions=10)
        registry = CollectorRegistry()
        registry.register(StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory))
        scraping, changes = asyncio.create_task(render([registry])), 0
        while not scraping.done():
            await asyncio.sleep(0)
            if changes == 10:
                node.apply(node.deletion(gone), *topic_records("new", uuid.uuid4(), 10))
            changes += 1
        assert changes > 10
        page = (await scraping).decode()
        assert page.count("# TYPE kafka_log_log_size gauge") == 1
        for index in range(10):
            assert page.count(f'kafka_log_log_size{{partition="{index}",topic="kept"}} 0.0') == 1
        assert node.replica(kept).is_leader
