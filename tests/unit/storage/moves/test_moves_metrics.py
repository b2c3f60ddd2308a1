"""What Prometheus sees of moves between log directories."""

from __future__ import annotations

from pathlib import Path

from moving_replicas import (
    VALUE,
    alter,
    broker_setting,
    failing_in,
    fill,
    hanging,
    throttled,
    until,
    until_idle,
)
from prometheus_client import CollectorRegistry
from storage_harness import StorageHarness

from barnabas.kernel.errors import ErrorCode
from barnabas.storage.moves.moves_metrics import MovesCollector

MANAGER = "kafka_server_replicaalterlogdirsmanager_"
CLIENT = {"clientId": "ReplicaAlterLogDirs"}


async def test_moves_and_those_that_failed_are_seen(node: StorageHarness, paths: list[Path]) -> None:
    registry = CollectorRegistry()
    registry.register(MovesCollector(node.replicas.moves, node.lanes))

    def value(name: str, labels: dict[str, str] | None = None) -> float:
        found = registry.get_sample_value(name, labels or {})
        assert found is not None
        return found

    topic = await node.create_topic()
    await fill(node, topic, 50)
    assert value("kafka_server_alterlogdirsreplication_byte_rate") == 0
    with failing_in(paths[0], "rename"):
        await alter(node, paths[1])
        await until_idle(node)
    assert value(f"{MANAGER}failedpartitionscount", CLIENT) == 1
    node.apply(throttled(100))
    assert await alter(node, paths[2]) == [ErrorCode.none]
    await until(lambda: node.replicas.moves.copied_bytes)
    assert value(f"{MANAGER}failedpartitionscount", CLIENT) == 0, "it moves again"
    assert value(f"{MANAGER}maxlag", CLIENT) > 40
    assert value("barnabas_storage_moving_replicas") == 1
    assert value("barnabas_storage_moved_bytes_total") >= len(VALUE)
    assert value("kafka_server_alterlogdirsreplication_byte_rate") >= len(VALUE)
    node.apply(throttled(2**62), broker_setting(cordoned_log_dirs=str(paths[0])))
    await until_idle(node)
    assert value("barnabas_storage_moving_replicas") == 0
    assert value("kafka_log_logmanager_logdirectorycordoned", {"logDirectory": str(paths[0])}) == 1


async def test_one_that_leaves_has_failed_no_longer(node: StorageHarness, paths: list[Path]) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 1)
    with failing_in(paths[0], "rename"):
        await alter(node, paths[1])
        await until_idle(node)
    assert node.replicas.moves.failed_count == 1
    node.snapshot(node.deletion(topic), revision=2_000)
    assert node.replicas.moves.failed_count == 0


async def test_what_fails_after_its_replica_has_left_counts_no_more(
    node: StorageHarness, paths: list[Path]
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with hanging("copy") as entered:
        await alter(node, paths[1])
        await until(entered.is_set)
        node.snapshot(node.deletion(topic), revision=2_000)
        await until(lambda: node.replicas.is_idle)
    await until_idle(node)
    assert node.replicas.moves.failed_count == 0
