"""Disks that fail or are gone: others lead at once, and nothing acknowledged is lost with the last one that led."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from test_kill_and_restart import PARTITIONS, WAIT_SECONDS, SteadyProducer, assert_exactly_once, read_all
from test_replicas import NODES, SETTINGS, make_replicated, wait_until_in_sync

pytestmark = pytest.mark.integration


def partitions_of(cluster: Any, topic: str) -> dict[int, Any]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found: dict[int, Any] = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
    return found


def wait_for(cluster: Any, topic: str, is_so: Callable[[Any], bool]) -> None:
    """Return once partition 0 is as `is_so` says."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so(part := partitions_of(cluster, topic)[0]):
        assert time.monotonic() < deadline, (part.leader, part.isrs)
        time.sleep(0.05)


def wait_until_led(cluster: Any, topic: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = partitions_of(cluster, topic)
        led = [part.id for part in found.values() if part.leader >= 0]
        if len(led) == count:
            return
        assert time.monotonic() < deadline, f"{len(led)} of {len(found)} partitions are led"
        time.sleep(0.1)


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


def test_a_follower_whose_disk_fails_does_not_lead_when_its_leader_dies(
    make_cluster: Callable[..., Any],
) -> None:
    """With two replicas it has to be out of sync at once, not when it has lagged for replica.lag.time.max.ms."""
    cluster = make_cluster(nodes=2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("pair", 1, replica_assignment=[[2, 1]], config={"flush.messages": "1"})
    admin.create_topics([topic])["pair"].result(WAIT_SECONDS)
    wait_for(cluster, "pair", lambda part: len(part.isrs) == 2)
    shutil.rmtree(cluster.data_dir / "node-1" / "pair-0")
    began = time.monotonic()
    cluster.produce("pair", ["kept"])
    wait_for(cluster, "pair", lambda part: part.isrs == [2])
    assert time.monotonic() - began < 10
    cluster.stop_service("broker-2", kill=True)
    wait_for(cluster, "pair", lambda part: part.leader == -1)
    cluster.start_service("broker-2")
    wait_for(cluster, "pair", lambda part: part.leader == 2)
    (record,) = cluster.wait_for_records("pair", 1)
    assert record.value == b"kept"


def test_what_was_acknowledged_outlives_the_disk_of_the_last_leader(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=NODES)
    topic = make_replicated(cluster, "outliving")
    wait_until_in_sync(cluster, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(300)
    for node in range(1, NODES + 1):
        cluster.stop_service(f"broker-{node}")
    cluster.stop()
    shutil.rmtree(cluster.data_dir / f"node-{NODES}")
    cluster.start()
    wait_until_in_sync(cluster, topic)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_partitions_that_were_just_made_come_back(make_cluster: Callable[..., Any], is_killed: bool) -> None:
    cluster = make_cluster(nodes=NODES)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2"}
    if is_killed:
        cluster.pause(f"broker-{NODES}")  # it makes none of its logs
    admin.create_topics([NewTopic("new", 100, NODES, config=config)])["new"].result(WAIT_SECONDS)
    if is_killed:
        cluster.kill_supervisor()
    else:
        cluster.stop()
    cluster.start()
    wait_until_led(cluster, "new", 100)
