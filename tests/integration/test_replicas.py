"""Topics with three replicas on three nodes: any node goes, nothing is lost, and the replicas are equal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_kill_and_restart import PARTITIONS, WAIT_SECONDS, SteadyProducer, assert_exactly_once, read_all

pytestmark = [pytest.mark.integration, pytest.mark.alone]

NODES = 3
SETTINGS = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200, "reconnect_backoff_max_ms": 200}


def make_replicated(cluster: Any, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    return name


def wait_until_in_sync(cluster: Any, topic: str) -> None:
    """Return once every partition has a leader and all of its replicas in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions.values()
        if len(found) == PARTITIONS and all(part.leader >= 0 and len(part.isrs) == NODES for part in found):
            return
        assert time.monotonic() < deadline, [(part.id, part.leader, part.isrs) for part in found]
        time.sleep(0.05)


def batches_on(data_dir: Path, node: int, topic: str, partition: int) -> bytes:
    """What stands in the node's log of the partition, from its first segment to its last."""
    folder = data_dir / f"node-{node}" / f"{topic}-{partition}"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def assert_replicas_are_equal(cluster: Any, topic: str) -> None:
    for partition in range(PARTITIONS):
        logs = [batches_on(cluster.data_dir, node, topic, partition) for node in range(1, NODES + 1)]
        assert logs[0] != b""
        assert logs[1:] == logs[:1] * (NODES - 1), f"replicas of {topic}-{partition} differ"


@pytest.mark.parametrize(
    ("flags", "prefix", "ending"),
    [
        ((), "broker", signal.SIGKILL),
        (("--separate",), "storage", signal.SIGTERM),
    ],
    ids=["broker-killed", "storage-stopped"],
)
def test_any_node_goes_and_nothing_is_lost(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], prefix: str, ending: signal.Signals
) -> None:
    cluster = make_cluster(nodes=NODES, flags=flags)
    topic = make_replicated(cluster, "replicated")
    wait_until_in_sync(cluster, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        for node in range(1, NODES + 1):
            producer.wait_for_more(300)
            if ending is signal.SIGKILL:
                cluster.kill_and_wait(f"{prefix}-{node}")
            else:
                cluster.restart(f"{prefix}-{node}")
            went_at = time.monotonic()
            producer.wait_for_more(300)
            assert time.monotonic() - went_at < 20, "clients took too long to recover"
            wait_until_in_sync(cluster, topic)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))
    wait_until_in_sync(cluster, topic)
    cluster.stop()
    assert_replicas_are_equal(cluster, topic)


def test_producers_go_on_while_a_node_is_away_and_it_catches_up(make_cluster: Callable[..., Any]) -> None:
    """Two of three are in sync, which min.insync.replicas asks for; with one alone, acks=all is refused."""
    cluster = make_cluster(nodes=NODES)
    topic = make_replicated(cluster, "one-away")
    wait_until_in_sync(cluster, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(300)
        cluster.stop_service("broker-2", kill=True)
        producer.wait_for_more(1_000)
        cluster.stop_service("broker-3", kill=True)
        time.sleep(3)
        before = len(producer.acknowledged)
        time.sleep(1)
        assert len(producer.acknowledged) == before, "one replica alone acknowledged acks=all"
        starting = threading.Thread(target=cluster.start_service, args=("broker-3",))
        starting.start()  # it waits for all
        producer.wait_for_more(300)
        cluster.start_service("broker-2")
        starting.join()
        wait_until_in_sync(cluster, topic)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))
    cluster.stop()
    assert_replicas_are_equal(cluster, topic)
