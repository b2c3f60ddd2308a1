"""Disks that fail: others lead at once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_kill_and_restart import PARTITIONS, WAIT_SECONDS, SteadyProducer, assert_exactly_once, read_all
from test_replicas import NODES, SETTINGS, wait_until_in_sync

pytestmark = pytest.mark.integration


def partitions_of(cluster: Any, topic: str) -> dict[int, Any]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found: dict[int, Any] = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
    return found


def test_a_leader_whose_disk_fails_is_followed_by_another(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=NODES)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2", "flush.messages": "1"}
    admin.create_topics([NewTopic("failing", PARTITIONS, NODES, config=config)])["failing"].result(
        WAIT_SECONDS
    )
    wait_until_in_sync(cluster, "failing")
    leader = partitions_of(cluster, "failing")[0].leader
    # What it writes of the log besides the records cannot be written any more: its first sync fails.
    shutil.rmtree(cluster.data_dir / f"node-{leader}" / "failing-0")
    began = time.monotonic()
    with SteadyProducer(cluster.bootstrap, "failing", **SETTINGS) as producer:
        while (part := partitions_of(cluster, "failing")[0]).leader in (leader, -1):
            assert time.monotonic() - began < 10, "nobody else leads"
            time.sleep(0.02)
        assert leader not in part.isrs
        producer.wait_for_more(300)
    assert_exactly_once(producer, read_all(cluster.bootstrap, "failing"))
    cluster.kill_and_wait(f"broker-{leader}")
    wait_until_in_sync(cluster, "failing")
