"""etcd is lost under topics with three replicas, and a backup restored as docs/restoring-metadata.md says: one replica
that is in sync by the backup has fallen out since, and lacks what was acknowledged after that.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from command_line import CommandLine
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from running_cluster import free_ports, require_program
from running_services import loose_cluster
from test_kill_and_restart import WAIT_SECONDS, SteadyProducer, read_all
from test_one_replica_of_three import ThreeNodes, make_topic
from test_restored_metadata import consume_and_commit
from test_up_with_etcd import Etcd

pytestmark = pytest.mark.integration

TOPIC: Final = "events"
REPLICAS: Final = ([3, 1, 2], [1, 2, 3], [2, 3, 1])
"""Of its partitions: each node leads one when the backup is made."""
LEFT_BEHIND: Final = 3
"""The node that is away while records are acknowledged, and has to stay away at first."""
OTHERS: Final = (1, 2)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def three(tmp_path: Path, etcd: Etcd) -> Iterator[ThreeNodes]:
    with loose_cluster(tmp_path) as cluster:
        cluster.port = free_ports(3)  # one for each node
        cluster.bootstrap = f"127.0.0.1:{cluster.port}"
        cluster.settings["gateway"]["listeners"] = f"PLAINTEXT://{cluster.bootstrap}"
        cluster.settings["controller"] |= {
            "etcd.endpoints": etcd.url.removeprefix("http://"),
            "offsets.topic.num.partitions": "6",
        }
        nodes = ThreeNodes(cluster)
        yield nodes
        for node in nodes.nodes.values():
            node.kill()


def etcdctl(*arguments: str) -> None:
    command = [require_program("etcdctl"), *arguments]
    subprocess.run(command, env={**os.environ, "ETCDCTL_API": "3"}, check=True, timeout=WAIT_SECONDS)


def start_services(three: ThreeNodes) -> None:
    """All that are no storage nodes, without waiting."""
    three.cluster.start("controller", "gateway", "coordinator")


def stop_all(three: ThreeNodes) -> None:
    services = three.cluster.services
    for process in (
        services["gateway"],
        services["coordinator"],
        *three.nodes.values(),
        services["controller"],
    ):
        if process.process.poll() is None:
            assert process.stop() == 0, process.errors()


def restore(etcd: Etcd, folder: Path, backup: Path) -> None:
    etcd.stop()
    shutil.rmtree(folder / "etcd")
    etcdctl("snapshot", "restore", str(backup), f"--data-dir={folder / 'etcd'}")
    etcd.start()


def produce(three: ThreeNodes) -> list[int]:
    """The values of some hundreds of records or more, each of them acknowledged by all in sync."""
    with SteadyProducer(three.cluster.bootstrap, TOPIC) as producer:
        producer.wait_for_more(300)
    assert producer.failed == []
    return producer.acknowledged


def log_of(node: Path, partition: int) -> bytes:
    return (node / "disk" / "log" / f"{TOPIC}-{partition}" / f"{0:020d}.log").read_bytes()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def wait_for_isr(three: ThreeNodes, *nodes: int) -> None:
    wait_until(
        lambda: all(isr == list(nodes) for _, isr in three.in_sync(TOPIC)), f"{nodes} are not alone in sync"
    )


def start_those_that_have_everything(three: ThreeNodes) -> None:
    """Step 3, up to where the node that is left out may start."""
    start_services(three)
    three.cluster.services["gateway"].wait_ready()
    three.start(*OTHERS)
    run = CommandLine(three.cluster.bootstrap)

    def shown(flag: str) -> list[TopicPartition]:
        topics = run("topics", "--describe", flag, "--output", "json").data
        return [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in topics
            for partition in topic["partitions"]
        ]

    def is_fenced() -> bool:
        nodes = {row["id"]: row["state"] for row in run("nodes", "list", "--output", "json").data}
        return nodes[LEFT_BEHIND] == "fenced"

    wait_until(is_fenced, "it is not fenced")
    if unavailable := shown("--unavailable-partitions"):
        admin = AdminClient({"bootstrap.servers": three.cluster.bootstrap})
        elected = admin.elect_leaders(ElectionType.UNCLEAN, unavailable).result(WAIT_SECONDS)
        refused = {error.code() for error in elected.values() if error is not None}
        assert refused <= {KafkaError.ELECTION_NOT_NEEDED}, elected  # one may have come to lead meanwhile
    wait_until(lambda: not shown("--under-min-isr-partitions"), "the others are not in sync")


@pytest.mark.parametrize("restarted", [False, True], ids=["same-processes", "restarted-since"])
def test_a_replica_that_fell_out_of_sync_after_the_backup_stays_away_until_others_lead(
    three: ThreeNodes, etcd: Etcd, tmp_path: Path, restarted: bool
) -> None:
    """Where the others were restarted since, the backup does not know their last processes, nor that they stopped in
    order: nobody leads before somebody says who may.
    """
    backup = tmp_path / "backup"
    start_services(three)
    three.start(*OTHERS, LEFT_BEHIND)
    make_topic(three, TOPIC, *REPLICAS)
    acknowledged = produce(three)
    consume_and_commit(three.cluster, TOPIC)
    etcdctl(f"--endpoints={etcd.url}", "snapshot", "save", str(backup))
    for node in OTHERS if restarted else ():
        assert three.nodes[node].stop() == 0
        three.start(node)
    assert three.nodes[LEFT_BEHIND].stop() == 0
    wait_for_isr(three, *OTHERS)
    acknowledged += produce(three)
    consume_and_commit(three.cluster, TOPIC)
    stop_all(three)

    restore(etcd, tmp_path, backup)
    start_those_that_have_everything(three)
    three.start(LEFT_BEHIND)
    wait_for_isr(three, *OTHERS, LEFT_BEHIND)
    values = itertools.chain.from_iterable(read_all(three.cluster.bootstrap, TOPIC))
    assert Counter(values) == Counter(acknowledged)
    later = produce(three)
    following = consume_and_commit(three.cluster, TOPIC)
    assert sorted(following) == sorted(later), "the group goes on where it had committed"
    wait_for_isr(three, *OTHERS, LEFT_BEHIND)
    stop_all(three)
    for partition in range(len(REPLICAS)):
        logs = [log_of(tmp_path / f"node-{node}", partition) for node in (*OTHERS, LEFT_BEHIND)]
        assert logs[0] == logs[1] == logs[2], f"replicas of {TOPIC}-{partition} differ"
