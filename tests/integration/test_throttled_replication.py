"""Replicas are copied at the rate that Kafka's own tool, or ours, is told (KIP-73); in the end the throttle goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from command_line import CommandLine, executable
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka_tools import ToolsInOneJvm
from test_nodes import until

pytestmark = [pytest.mark.integration, pytest.mark.alone]

WAIT_SECONDS: Final = 30
RATE: Final = 1_200_000
SIZE: Final = 12_000_000
THROTTLES: Final = ("leader.replication.throttled", "follower.replication.throttled")


def fill(cluster: Any, topic: str, *, node: int, size: int) -> None:
    """A topic whose one partition, on `node` alone, has so many bytes."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = NewTopic(topic, 1, replica_assignment=[[node]])
    admin.create_topics([made])[topic].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(size // 100_000):
        producer.produce(topic, os.urandom(100_000), partition=0)
    assert producer.flush(WAIT_SECONDS) == 0


def plan(folder: Path, topic: str, replicas: list[int]) -> str:
    file = folder / f"{topic}.json"
    partition = {"topic": topic, "partition": 0, "replicas": replicas}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(file)


def replicas_of(cluster: Any, topic: str) -> tuple[list[int], list[int]]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partition = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions[0]
    return sorted(partition.replicas), sorted(partition.isrs)


def wait_until_there(cluster: Any, topic: str, nodes: list[int]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while replicas_of(cluster, topic) != (nodes, nodes):
        assert time.monotonic() < deadline, replicas_of(cluster, topic)
        time.sleep(0.05)


class Copying:
    """Sees a log grow on the node that it is copied to, in a thread of its own: the tools take their time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        deadline = time.monotonic() + 3 * WAIT_SECONDS
        size = 0
        while size < SIZE and time.monotonic() < deadline:
            size = sum(file.stat().st_size for file in self._folder.glob("*.log"))
            if size and (not self._sizes or size > self._sizes[-1][1]):
                self._sizes.append((time.monotonic(), size))
            time.sleep(0.01)

    def rate(self) -> float:
        """Bytes a second from when something was there until all is."""
        self._thread.join()
        (began, first), (ended, last) = self._sizes[0], self._sizes[-1]
        assert last >= SIZE, self._sizes
        return (last - first) / (ended - began)


def throttles(cluster: Any, topic: str) -> dict[str, str]:
    """Those of the topic and of both brokers, as they are set."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resources = [ConfigResource(ResourceType.TOPIC, topic)]
    resources += [ConfigResource(ResourceType.BROKER, str(node)) for node in (1, 2)]
    found = {}
    for resource in resources:
        (described,) = admin.describe_configs([resource]).values()
        for name, entry in described.result(WAIT_SECONDS).items():
            if name.startswith(THROTTLES) and entry.value and not entry.is_default:
                found[f"{resource.name} {name}"] = entry.value
    return found


def test_a_reassignment_goes_at_its_rate_and_the_throttle_is_taken_away(
    make_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=2)
    fill(cluster, "moved", node=1, size=SIZE)
    fill(cluster, "other", node=1, size=SIZE)
    with ToolsInOneJvm(cluster.bootstrap) as tools:
        file = plan(tmp_path, "moved", [2])
        copying = Copying(cluster.data_dir / "node-2" / "moved-0")
        flags = ("--reassignment-json-file", file)
        started = tools("reassign-partitions", "--execute", *flags, "--throttle", str(RATE)).stdout
        assert f"The inter-broker throttle limit was set to {RATE} B/s" in started
        assert throttles(cluster, "moved") == {
            "moved leader.replication.throttled.replicas": "0:1",
            "moved follower.replication.throttled.replicas": "0:2",
            **{f"{node} {side}.rate": str(RATE) for node in (1, 2) for side in THROTTLES},
        }
        # One that is not throttled is not held up by it.
        other = ("--reassignment-json-file", plan(tmp_path, "other", [1, 2]))
        tools("reassign-partitions", "--execute", *other, "--additional")
        wait_until_there(cluster, "other", [1, 2])
        assert replicas_of(cluster, "moved")[1] == [1]
        assert "is still in progress" in tools("reassign-partitions", "--verify", *flags).stdout
        assert throttles(cluster, "moved") != {}
        assert 0.5 * RATE < copying.rate() < 1.2 * RATE
        wait_until_there(cluster, "moved", [2])
        verified = tools("reassign-partitions", "--verify", *flags).stdout
        assert "Reassignment of partition moved-0 is completed." in verified
        assert "Clearing broker-level throttles on brokers 1,2" in verified
        assert "Clearing topic-level throttles on topic moved" in verified
    assert throttles(cluster, "moved") == {}


def begin_drain(run: CommandLine, node: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(executable()), "nodes", "drain", str(node), "--throttle", str(RATE)],
        env=run.environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_drain_goes_at_its_rate_and_what_was_set_before_is_put_back(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(nodes=2)
    run = CommandLine(f"127.0.0.1:{cluster.port + 1}")
    fill(cluster, "moved", node=1, size=SIZE)
    alter = ("configs", "--alter")
    run(*alter, "--broker", "1", "--add-config", "leader.replication.throttled.rate=90000000")
    run(*alter, "--topic", "moved", "--add-config", "follower.replication.throttled.replicas=[0:2,0:1]")
    before = throttles(cluster, "moved")
    assert before == {
        "1 leader.replication.throttled.rate": "90000000",
        "moved follower.replication.throttled.replicas": "0:2,0:1",
    }
    held = {
        "moved leader.replication.throttled.replicas": "0:1",
        "moved follower.replication.throttled.replicas": "0:2",
        **{f"{node} {side}.rate": str(RATE) for node in (1, 2) for side in THROTTLES},
    }
    copying = Copying(cluster.data_dir / "node-2" / "moved-0")
    drain = begin_drain(run, 1)
    try:
        until(lambda: throttles(cluster, "moved"), held)
        rate = copying.rate()
        _, said = drain.communicate(timeout=WAIT_SECONDS)
    finally:
        drain.kill()
    assert drain.returncode == 0, said
    assert "1 partition reassigned" in said
    assert "put back 2 throttles from before this command" in said
    assert 0.5 * RATE < rate < 1.2 * RATE
    assert throttles(cluster, "moved") == before

    # Broken off, it leaves nothing behind; what was begun goes on, as fast as it can.
    run("nodes", "undrain", "1")
    copying = Copying(cluster.data_dir / "node-1" / "moved-0")
    drain = begin_drain(run, 2)
    try:
        until(lambda: throttles(cluster, "moved")["1 leader.replication.throttled.rate"], str(RATE))
        until(lambda: replicas_of(cluster, "moved")[0], [1, 2])
        drain.send_signal(signal.SIGINT)
        _, said = drain.communicate(timeout=WAIT_SECONDS)
    finally:
        drain.kill()
    assert drain.returncode == 130, said
    assert "what was begun goes on at the rates from before" in said
    assert throttles(cluster, "moved") == before
    run("nodes", "drain", "2")
    assert copying.rate() > 1.5 * RATE
    assert throttles(cluster, "moved") == before, "who joins sets nothing, and takes nothing away"
