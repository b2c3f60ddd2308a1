"""The offsets of groups survive the loss of a node, of a cluster that was made so and of one that grew."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from running_cluster import Cluster

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 60
INTERNAL: Final = "__consumer_offsets"
PARTITIONS: Final = 6
GROUPS: Final = 4
MOVED: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
FEW: Final = ("--override", f"offsets.topic.num.partitions={PARTITIONS}")


def bootstrap_of(cluster: Any) -> str:
    """All nodes, for any of them may be away."""
    return ",".join(f"127.0.0.1:{cluster.port + position}" for position in range(cluster.nodes))


@contextlib.contextmanager
def member_of(cluster: Any, group: str) -> Iterator[Consumer]:
    client = Consumer({"bootstrap.servers": bootstrap_of(cluster), "group.id": group, "log_level": 0})
    try:
        yield client
    finally:
        client.close()


def make_orders(cluster: Any) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(cluster)})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(WAIT_SECONDS)


def commit_to_all(cluster: Any, offset: int) -> None:
    for number in range(GROUPS):
        with member_of(cluster, f"group-{number}") as client:
            offsets = [TopicPartition("orders", 0, offset)]
            again(lambda client=client, offsets=offsets: client.commit(offsets=offsets, asynchronous=False))


def committed_by_all(cluster: Any) -> list[int]:
    """A broker that was killed was a coordinator, too: librdkafka leaves it to who asks to ask the next one."""
    found = []
    for number in range(GROUPS):
        with member_of(cluster, f"group-{number}") as client:
            (position,) = again(
                lambda client=client: client.committed([TopicPartition("orders", 0)], WAIT_SECONDS)
            )
            found.append(position.offset)
    return found


def again(call: Callable[[], Any]) -> Any:
    """Call it until another coordinator answers."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in MOVED or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def produce(cluster: Any, number: int) -> None:
    """One record, which every replica in sync has."""
    producer = Producer({"bootstrap.servers": bootstrap_of(cluster), "acks": "all", "log_level": 0})
    producer.produce("orders", str(number))
    assert producer.flush(WAIT_SECONDS) == 0


def read(cluster: Any, count: int) -> list[int]:
    with member_of(cluster, "readers") as client:
        client.assign([TopicPartition("orders", 0, 0)])
        return [int(message.value()) for message in client.consume(count, WAIT_SECONDS)]


def replicas_in_sync(cluster: Any, topic: str) -> list[tuple[int, ...]]:
    """The in-sync replicas of each partition, each sorted."""
    admin = AdminClient({"bootstrap.servers": bootstrap_of(cluster), "log_level": 0})
    partitions = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
    return [tuple(sorted(partitions[index].isrs)) for index in sorted(partitions)]


def wait_for_replicas(cluster: Any, topic: str, wanted: list[tuple[int, ...]]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := replicas_in_sync(cluster, topic)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_a_cluster_of_three_nodes_replicates_what_nobody_gave_numbers_for(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(nodes=3, flags=FEW)
    make_orders(cluster)
    commit_to_all(cluster, 0)
    wait_for_replicas(cluster, "orders", [(1, 2, 3)])
    wait_for_replicas(cluster, INTERNAL, [(1, 2, 3)] * PARTITIONS)
    for node in (1, 2, 3):
        cluster.stop_service(f"broker-{node}", kill=True)
        shutil.rmtree(cluster.data_dir / f"node-{node}")
        assert committed_by_all(cluster) == [node - 1] * GROUPS
        commit_to_all(cluster, node)
        produce(cluster, node)
        cluster.start_service(f"broker-{node}")
        wait_for_replicas(cluster, "orders", [(1, 2, 3)])
        wait_for_replicas(cluster, INTERNAL, [(1, 2, 3)] * PARTITIONS)
    assert read(cluster, 3) == [1, 2, 3]


def test_a_cluster_that_began_with_one_node_and_grew(make_cluster: Callable[..., Any]) -> None:
    alone = make_cluster(flags=FEW)
    make_orders(alone)
    commit_to_all(alone, 7)
    assert replicas_in_sync(alone, INTERNAL) == [(1,)] * PARTITIONS
    alone.stop()
    grown = Cluster(nodes=3, flags=FEW)
    try:
        left_behind = shutil.ignore_patterns("log", "run")
        shutil.copytree(alone.data_dir, grown.data_dir, ignore=left_behind, dirs_exist_ok=True)
        grown.start()
        wait_for_replicas(grown, INTERNAL, [(1, 2, 3)] * PARTITIONS)
        grown.stop_service("broker-1", kill=True)
        shutil.rmtree(grown.data_dir / "node-1")
        assert committed_by_all(grown) == [7] * GROUPS
        commit_to_all(grown, 8)
        assert committed_by_all(grown) == [8] * GROUPS
    finally:
        grown.close()
