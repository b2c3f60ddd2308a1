"""`barnabas_cluster.advance`: what time decides happens, and nothing else does."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing import Cluster, ClusterFailed, Topic

pytestmark = pytest.mark.integration

MINUTE, HOUR, DAY = 60, 3_600, 86_400
SESSION_SECONDS = 45
SOON_SECONDS = 20.0
"""Far less than what the test would take without the moved clock, and enough for a busy machine."""

MEMBER = """
import sys
from confluent_kafka import Consumer

servers, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "session.timeout.ms": 45000})
consumer.subscribe([topic])
while True:
    consumer.poll(1)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One whose time may go where each test leaves it."""
    with Cluster(nodes=2) as cluster:
        yield cluster


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not happen soon"
        time.sleep(0.05)


def consumer(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_SECONDS * 1000,
            "log_level": 0,
            **settings,
        }
    )


def log_append_time(cluster: Cluster, **config: str) -> Topic:
    return cluster.create_topic(config={"message.timestamp.type": "LogAppendTime", **config})


def ahead_ms(cluster: Cluster) -> int:
    """How far the time that the cluster gives a record is ahead of ours."""
    topic = log_append_time(cluster)
    topic.produce(["now"])
    return topic.records()[0].timestamp_ms - round(time.time() * 1000)


def test_records_past_their_retention_are_gone_when_it_returns(cluster: Cluster) -> None:
    short = cluster.create_topic(config={"retention.ms": str(HOUR * 1000)})
    week = cluster.create_topic()
    for topic in (short, week):
        topic.produce(["old"])
    cluster.advance(59 * MINUTE)
    assert [record.text for record in short.records()] == ["old"]
    cluster.advance(2 * MINUTE)
    assert short.records() == []
    short.produce(["new"])  # the helpers give records the cluster's time
    cluster.advance(10 * MINUTE)
    assert [record.text for record in short.records()] == ["new"]
    assert [record.text for record in week.records()] == ["old"]


def test_time_is_the_same_for_services_that_start_later_and_goes_forward_only(cluster: Cluster) -> None:
    before = ahead_ms(cluster)
    with cluster.down("storage-2", kill=True):  # it was not there to be told
        cluster.advance(DAY)
    cluster.kill_and_wait("storage-1")
    after = ahead_ms(cluster)
    assert (DAY - 1) * 1000 <= after - before < (DAY + MINUTE) * 1000
    with pytest.raises(ValueError, match="forward only"):
        cluster.advance(-1)
    cluster.restart()
    assert ahead_ms(cluster) >= (DAY - 1) * 1000


@pytest.mark.alone
def test_a_dead_member_goes_soon_and_a_live_one_stays(cluster: Cluster) -> None:
    topic, group = cluster.create_topic(partitions=2), "two-members"
    dead = subprocess.Popen([sys.executable, "-c", MEMBER, cluster.bootstrap_servers, group, topic])
    living = consumer(cluster, group)
    lost = list[Any]()
    living.subscribe([topic], on_lost=lambda _, partitions: lost.extend(partitions))
    try:
        until(
            lambda: (
                living.poll(0.05) or (len(_members(cluster, group)) == 2 and len(living.assignment()) == 1)
            )
        )
        dead.kill()
        started = time.monotonic()
        cluster.advance(SESSION_SECONDS + 1)
        until(lambda: living.poll(0.05) or len(living.assignment()) == 2)
        assert time.monotonic() - started < SESSION_SECONDS / 2
        assert len(_members(cluster, group)) == 1
        assert lost == []
    finally:
        dead.kill()
        dead.wait()
        living.close()


def test_committed_offsets_expire(cluster: Cluster) -> None:
    topic, group = cluster.create_topic(), "expiring"
    topic.produce(["a"])
    reader = consumer(cluster, group)
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    reader.close()
    cluster.advance(6 * DAY)
    assert _committed(cluster, group, topic) == 1
    cluster.advance(2 * DAY)
    until(lambda: _committed(cluster, group, topic) is None)


def test_a_producer_and_a_consumer_do_not_notice(cluster: Cluster) -> None:
    """A day at once, three times: no request fails, nothing is lost, doubled or out of order."""
    topic, count = log_append_time(cluster), itertools.count()
    stopping, failures = threading.Event(), list[Any]()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True, "retries": 2**31 - 1})

    def produce() -> None:
        while not stopping.wait(0.002):
            producer.produce(
                topic, str(next(count)), on_delivery=lambda error, _: error and failures.append(error)
            )
            producer.poll(0)
        producer.flush(SOON_SECONDS)

    producing = threading.Thread(target=produce)
    reader = consumer(cluster, "steady")
    lost = list[Any]()
    reader.subscribe([topic], on_lost=lambda _, partitions: lost.extend(partitions))
    restarts = {name: service.restarts for name, service in cluster.services().items()}
    logged = cluster.log_size()
    producing.start()
    try:
        seen = [_next(reader) for _ in range(50)]
        for _ in range(3):
            cluster.advance(DAY)
            seen += [_next(reader) for _ in range(200)]
    finally:
        stopping.set()
        producing.join()
    total = next(count)
    seen += [_next(reader) for _ in range(total - len(seen))]
    reader.close()
    assert failures == []
    assert lost == []
    assert seen == list(range(total))
    assert [record.text for record in topic.records()] == [str(number) for number in range(total)]
    assert {name: service.restarts for name, service in cluster.services().items()} == restarts
    assert [line for line in cluster.log_lines(logged) if "did not come back" in line] == []


def test_the_shared_clusters_time_is_taken_back(barnabas_cluster: Cluster) -> None:
    """What the plugin does after a test that moved it."""
    topic = barnabas_cluster.create_topic()
    topic.produce(["a"])
    barnabas_cluster.advance(DAY)
    assert ahead_ms(barnabas_cluster) >= (DAY - 1) * 1000
    barnabas_cluster.heal()
    assert abs(ahead_ms(barnabas_cluster)) < MINUTE * 1000
    assert [record.text for record in topic.records()] == ["a"]


def test_a_cluster_that_is_not_for_tests_has_no_such_endpoint() -> None:
    cluster = Cluster()
    cluster._flags.remove("--fault-injection")
    with cluster, pytest.raises(ClusterFailed, match="Not Found"):
        cluster.advance(1)


def _next(reader: Consumer) -> int:
    message = reader.poll(SOON_SECONDS)
    assert message is not None, "no record"
    assert message.error() is None, message.error()
    value = message.value()
    assert value is not None
    return int(value)


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def _members(cluster: Cluster, group: str) -> list[str]:
    admin = _admin(cluster)  # its end would end what it was asked
    (described,) = admin.describe_consumer_groups([group]).values()
    return [member.member_id for member in described.result(10).members]


def _committed(cluster: Cluster, group: str, topic: str) -> int | None:
    """The offset of the group in partition 0; None when there is none."""
    admin = _admin(cluster)
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (answer,) = asked.values()
    found = [each.offset for each in answer.result(10).topic_partitions if each.topic == topic]
    return found[0] if found and found[0] >= 0 else None
