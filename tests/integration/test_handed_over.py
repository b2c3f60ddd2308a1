"""A storage node that stops in order hands its leaderships over: what a producer hears of it, answer by answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from raw_client import METADATA, PRODUCE, RawConnection, Topic

from barnabas.kernel.errors import ErrorCode
from barnabas.records.record import encode_batch

pytestmark = pytest.mark.integration

NODES: Final = 3
WAIT_SECONDS: Final = 20.0
VERSION: Final = 12
UNDER_WAY: Final = 5
"""Requests that an idempotent producer sends ahead at the most."""


def leadership(cluster: Any, topic: str) -> tuple[int, list[int]]:
    """(leader, in-sync replicas) of the topic's one partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    partition = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions[0]
    return partition.leader, partition.isrs


def wait_until_in_sync(cluster: Any, topic: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while len((found := leadership(cluster, topic))[1]) < NODES or found[0] < 0:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def batch(number: int, producer_id: int) -> bytes:
    epoch, sequence = (0, number) if producer_id >= 0 else (-1, -1)
    records = [(0, None, str(number).encode(), ())]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Sender:
    """A producer on one connection that sends ahead, and never sends anything again."""

    def __init__(self, connection: RawConnection, topic: Topic, producer_id: int, acks: int) -> None:
        self.answers: list[Any] = []
        self._connection, self._topic, self._producer_id, self._acks = connection, topic, producer_id, acks
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _send(self) -> None:
        waiting: list[int] = []
        number = 0
        while waiting or not self._stopping.is_set():
            if len(waiting) < UNDER_WAY and not self._stopping.is_set():
                body = self._topic.produce_body({0: batch(number, self._producer_id)}, acks=self._acks)
                waiting.append(self._connection.post(PRODUCE, VERSION, body))
                number += 1
                continue
            self.answers.append(self._connection.answer(PRODUCE, VERSION, waiting.pop(0)))


def codes(answers: list[Any]) -> list[ErrorCode]:
    return [answer.responses[0].partition_responses[0].error_code for answer in answers]


@pytest.mark.parametrize(
    ("producer_id", "acks"), [(7_000, -1), (-1, -1), (-1, 1)], ids=["idempotent", "plain", "acks=1"]
)
def test_where_the_gateway_stays_a_producer_hears_of_no_error(
    make_cluster: Callable[..., Any], producer_id: int, acks: int
) -> None:
    """Nor is anything lost that it was told is written. Without sequences what was under way may change its order, as
    with Kafka's producers that try again.
    """
    cluster = make_cluster(nodes=NODES, flags=("--separate",))
    port = int(cluster.bootstrap.rpartition(":")[2])
    topic = Topic(port, replication_factor=NODES, min_insync_replicas="2")
    for _ in range(2):
        wait_until_in_sync(cluster, topic.name)
        leader = leadership(cluster, topic.name)[0]
        with RawConnection(port) as connection:
            sender = Sender(connection, topic, producer_id, acks)
            with sender.running():
                time.sleep(0.5)
                cluster.stop_service(f"storage-{leader}")
                time.sleep(0.5)
        assert leadership(cluster, topic.name)[0] != leader
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in sender.answers]
        assert set(codes(sender.answers)) == {ErrorCode.none}
        if producer_id < 0:
            offsets.sort()
        steps = [
            (number, after - before) for number, (before, after) in enumerate(itertools.pairwise(offsets))
        ]
        assert [step for step in steps if step[1] != 1] == [], "in order, and none twice"
        cluster.start_service(f"storage-{leader}")
        if producer_id > 0:
            producer_id += 1  # the next one begins at sequence 0


def test_a_broker_that_stops_says_who_leads_before_it_closes_connections(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(nodes=NODES)
    port = int(cluster.bootstrap.partition(",")[0].rpartition(":")[2])
    topic = Topic(port, replication_factor=NODES, min_insync_replicas="2")
    wait_until_in_sync(cluster, topic.name)
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_SECONDS).brokers
    leader = leadership(cluster, topic.name)[0]
    with RawConnection(brokers[leader].port) as connection:
        stopping = threading.Thread(target=cluster.stop_service, args=(f"broker-{leader}",))
        stopping.start()
        number, told, deadline = 0, None, time.monotonic() + WAIT_SECONDS
        while told is None:
            assert time.monotonic() < deadline
            (part,) = topic.produce(connection, {0: batch(number, 7_000)}, version=VERSION)
            number += 1
            if part.error_code:
                told = part
            time.sleep(0.002)
        assert told.error_code is ErrorCode.not_leader_or_follower
        assert told.current_leader.leader_id not in (leader, -1)
        assert connection.is_closed()
        stopping.join()
    with RawConnection(brokers[told.current_leader.leader_id].port) as connection:
        (part,) = topic.produce(connection, {0: batch(number - 1, 7_000)}, version=VERSION)
    assert (part.error_code, part.base_offset) == (0, number - 1), "it was not written before"


def test_who_comes_to_a_broker_that_is_away_is_served_by_the_others(make_cluster: Callable[..., Any]) -> None:
    """It would wait for the broker's next process, although others lead by now; and goes to that when it is there."""
    cluster = make_cluster(nodes=NODES)
    port = int(cluster.bootstrap.partition(",")[0].rpartition(":")[2])
    topic = Topic(port, replication_factor=NODES, min_insync_replicas="2")
    wait_until_in_sync(cluster, topic.name)
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_SECONDS).brokers
    leader = leadership(cluster, topic.name)[0]
    cluster.stop_service(f"broker-{leader}", kill=True)
    with RawConnection(brokers[leader].port) as connection:
        shown = {broker.node_id for broker in connection.ask(METADATA, 9, {"topics": []}).brokers}
        assert shown == set(brokers), "clients that know it are not to forget it yet"
        (part,) = topic.produce(connection, {0: batch(0, 7_000)}, version=VERSION)
        assert (part.error_code, part.base_offset) == (0, 0)
        cluster.start_service(f"broker-{leader}")
        assert connection.is_closed()
    with RawConnection(brokers[leader].port) as connection:
        (part,) = topic.produce(connection, {0: batch(1, 7_000)}, version=VERSION)
    assert (part.error_code, part.base_offset) == (0, 1)


class Committer:
    """Commits for a group of its own, one commit after the other, by librdkafka, which tries again twice."""

    def __init__(self, bootstrap: str, topic: str, group_id: str) -> None:
        self.count = 0
        self.errors: list[str] = []
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0})

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(self._topic, 0, self.count + 1)], asynchronous=False
                )
                self.count += 1
            except KafkaException as error:
                self.errors.append(str(error))
            time.sleep(0.01)
        (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=WAIT_SECONDS)
        assert self.errors or found.offset == self.count
        self._consumer.close()


def test_groups_commit_while_each_broker_is_restarted(make_cluster: Callable[..., Any]) -> None:
    """Their coordinators are in the brokers, one after another."""
    cluster = make_cluster(nodes=NODES)
    topic = Topic(int(cluster.bootstrap.rpartition(":")[2]), replication_factor=NODES)
    committers = [Committer(cluster.bootstrap, topic.name, f"g{number}") for number in range(8)]
    stopping = threading.Event()
    with ThreadPoolExecutor(len(committers)) as threads:
        running = [threads.submit(each.run, stopping) for each in committers]
        try:
            while not all(each.count for each in committers):
                time.sleep(0.05)
            for node in range(1, NODES + 1):
                wait_until_in_sync(cluster, topic.name)
                before = [each.count for each in committers]
                cluster.stop_service(f"broker-{node}")
                time.sleep(1.0)
                cluster.start_service(f"broker-{node}")
                time.sleep(1.0)
                assert all(each.count > count for each, count in zip(committers, before, strict=True))
        finally:
            stopping.set()
    for each in running:
        each.result()
    assert [each.errors for each in committers] == [[]] * len(committers)
