"""A storage node whose disk is full, as a consumer group sees it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka_client import admin_of, consumer_of, make_topic, poll_records, poll_until, produce
from running_services import LooseCluster, loose_cluster
from small_disk import SmallDisk

pytestmark = [pytest.mark.integration, pytest.mark.alone]

SESSION_MS = 2_000
WAIT_SECONDS = 60
TOPIC = "readings"
GROUP = "readers"


def commit(client: Consumer, offset: int) -> None:
    client.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


def commit_until_refused(client: Consumer) -> int:
    """The last offset that was acknowledged: what is left of the log's last page takes a few more."""
    deadline = time.monotonic() + WAIT_SECONDS
    offset = 100
    while time.monotonic() < deadline:
        try:
            commit(client, offset + 1)
        except KafkaException:
            return offset
        offset += 1
    pytest.fail(f"{offset} commits to a full disk")


def commit_when_it_goes(client: Consumer, offset: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return commit(client, offset)
        except KafkaException:
            assert time.monotonic() < deadline, "the disk is free again, and nothing can be committed"


def committed(cluster: LooseCluster) -> int:
    """As who does not ask for stable offsets is told; others have to wait for a log that takes writes."""
    with consumer_of(cluster, GROUP, isolation_level="read_uncommitted") as newcomer:
        (found,) = newcomer.committed([TopicPartition(TOPIC, 0)], WAIT_SECONDS)
    offset: int = found.offset
    return offset


def members(cluster: LooseCluster) -> list[str]:
    admin = admin_of(cluster)  # its requests end with it, so it must outlive the wait
    group = admin.describe_consumer_groups([GROUP])[GROUP].result(WAIT_SECONDS)
    return [member.member_id for member in group.members]


def reloads(cluster: LooseCluster) -> float:
    _, text = cluster.services["coordinator"].get("/metrics")
    (value,) = re.findall(r"^barnabas_coordinator_partition_failures_total (\S+)$", text, re.MULTILINE)
    return float(value)


def test_a_group_lives_through_a_full_disk(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", size="64m")
    with loose_cluster(tmp_path) as cluster:
        cluster.settings["storage"]["log.dirs"] = str(tmp_path / "disk" / "log")
        cluster.settings["coordinator"]["group.min.session.timeout.ms"] = "1000"
        cluster.start("controller", "coordinator", "gateway")
        cluster.start("storage", wrapper=disk.wrapper)
        cluster.wait_ready()
        make_topic(cluster, TOPIC)
        produce(cluster, TOPIC, 10)
        settings = {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 300,
            "enable_auto_commit": False,
        }
        with consumer_of(cluster, GROUP, **settings) as client:
            revoked: list[object] = []
            client.subscribe([TOPIC], on_revoke=lambda _, partitions: revoked.append(partitions))
            poll_records(client, 10)
            commit(client, 10)
            before, loaded = members(cluster), reloads(cluster)

            disk.fill(cluster.services["storage"].process.pid)
            last = commit_until_refused(client)
            ends = time.monotonic() + 2 * SESSION_MS / 1000
            poll_until(lambda: time.monotonic() > ends, client)
            assert committed(cluster) == last
            assert members(cluster) == before

            disk.free()
            commit_when_it_goes(client, 1_000)
            assert committed(cluster) == 1_000
            assert members(cluster) == before
            assert revoked == []
            assert reloads(cluster) == loaded
