"""Disks that fail or are gone: others lead at once, and nothing acknowledged is lost with the last one that led."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from test_kill_and_restart import PARTITIONS, WAIT_SECONDS, SteadyProducer, assert_exactly_once, read_all
from test_replicas import NODES, SETTINGS, make_replicated, wait_until_in_sync

from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.checkpoint_file import HIGH_WATERMARK_FILE, read_offsets

pytestmark = pytest.mark.integration

GONE = "a partition's directory is gone"
"""What a node says at its start."""


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


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def starting(cluster: Any, name: str, said: str) -> Iterator[None]:
    """The service is starting, while another is down, and has `said` so in its log; at the end all are ready."""
    with ThreadPoolExecutor(1) as pool:
        ready = pool.submit(cluster.start_service, name)
        wait_until(lambda: said in cluster.log(), f"{name} did not say {said!r}")
        yield
        ready.result(WAIT_SECONDS)


def make_pair(cluster: Any, **config: str) -> Path:
    """A partition with fifty records on both nodes, of which the second's checkpoint knows; its directory there."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("pair", 1, replica_assignment=[[2, 1]], config=config)
    admin.create_topics([topic])["pair"].result(WAIT_SECONDS)
    wait_for(cluster, "pair", lambda part: len(part.isrs) == 2)
    cluster.produce("pair", [str(number) for number in range(50)])
    node: Path = cluster.data_dir / "node-2"
    written = str(node / HIGH_WATERMARK_FILE)
    wait_until(lambda: read_offsets(SystemFiles(), written).get(("pair", 0)) == 50, "no checkpoint")
    return node / "pair-0"


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


def test_a_leader_whose_log_cannot_have_its_next_file_is_followed_by_another(
    make_cluster: Callable[..., Any],
) -> None:
    """Its disk is well, and so are the other partitions in that directory; once there is a way it is in sync again."""
    cluster = make_cluster(nodes=NODES)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
    topics = [NewTopic(name, 1, replica_assignment=[[1, 2, 3]], config=config) for name in ("gone", "beside")]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_SECONDS)
    for name in ("gone", "beside"):
        wait_for(cluster, name, lambda part: (part.leader, len(part.isrs)) == (1, NODES))
    there, away = cluster.data_dir / "node-1" / "gone-0", cluster.data_dir / "away"
    there.rename(away)
    values = [str(number) * 400_000 for number in range(6)]
    began = time.monotonic()
    for value in values:
        cluster.produce("gone", [value])
    assert time.monotonic() - began < 10, "nobody else took them"
    wait_for(cluster, "gone", lambda part: part.leader in (2, 3) and 1 not in part.isrs)
    assert partitions_of(cluster, "beside")[0].leader == 1, "nothing else has moved"
    away.rename(there)
    wait_for(cluster, "gone", lambda part: len(part.isrs) == NODES)
    found = [record.value.decode() for record in cluster.wait_for_records("gone", len(values))]
    assert found == values


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


def test_what_all_three_had_outlives_the_disks_of_two(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=NODES)
    topic = make_replicated(cluster, "outliving")
    wait_until_in_sync(cluster, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(300)
    wait_until_in_sync(cluster, topic)
    lost = range(2, NODES + 1)
    for node in lost:
        cluster.stop_service(f"broker-{node}", kill=True)
    for node in lost:
        shutil.rmtree(cluster.data_dir / f"node-{node}")
    with ThreadPoolExecutor(NODES) as pool:  # a start returns when all of them are ready
        for _ in pool.map(lambda node: cluster.start_service(f"broker-{node}"), lost):
            pass
    wait_until_in_sync(cluster, topic)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


def test_a_node_without_a_partition_that_it_led_does_not_lead_it_after_a_stop(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(nodes=2)
    partition = make_pair(cluster, **{"min.insync.replicas": "2"})
    cluster.stop_service("broker-1")
    cluster.stop_service("broker-2")
    shutil.rmtree(partition)
    with starting(cluster, "broker-2", GONE):
        cluster.start_service("broker-1")
    wait_for(cluster, "pair", lambda part: len(part.isrs) == 2)
    assert len(cluster.wait_for_records("pair", 50)) == 50


def test_a_node_without_a_partition_that_it_led_waits_for_a_choice_after_a_kill(
    make_cluster: Callable[..., Any],
) -> None:
    """It was the only one in sync, and is the leader that was known last."""
    cluster = make_cluster(nodes=2)
    partition = make_pair(cluster)
    cluster.stop_service("broker-1", kill=True)
    second = SimpleNamespace(bootstrap=f"127.0.0.1:{cluster.port + 1}")
    wait_for(second, "pair", lambda part: part.isrs == [2])
    cluster.stop_service("broker-2", kill=True)
    shutil.rmtree(partition)
    with starting(cluster, "broker-2", "this node has no replica of it for now"):
        cluster.start_service("broker-1")
    wait_for(cluster, "pair", lambda part: part.leader == -1)
    cluster.kill_and_wait("broker-2")
    wait_until(lambda: cluster.log().count(GONE) == 2, "it did not miss it again")
    wait_for(cluster, "pair", lambda part: part.leader == -1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    here = TopicPartition("pair", 0)
    assert admin.elect_leaders(ElectionType.UNCLEAN, [here]).result(WAIT_SECONDS)[here] is None
    wait_for(cluster, "pair", lambda part: part.leader == 1 and len(part.isrs) == 2)
    assert len(cluster.wait_for_records("pair", 50)) == 50


def test_a_cluster_that_is_killed_again_and_again_loses_nothing_acknowledged(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(nodes=NODES)
    topic = make_replicated(cluster, "storm")
    wait_until_in_sync(cluster, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        for is_one_down in (False, True):
            producer.wait_for_more(200)
            if is_one_down:
                cluster.stop_service(f"broker-{NODES}", kill=True)
            cluster.kill_supervisor()
            cluster.start()
            producer.wait_for_more(50)
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
