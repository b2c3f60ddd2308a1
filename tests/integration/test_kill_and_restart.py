"""Kill -9 of any one service, crashes of everything, clean restarts: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

pytestmark = pytest.mark.integration

WAIT_SECONDS = 60
PARTITIONS = 3
SERVICES = [
    ((), "broker-1"),
    ((), "controller"),
    *((("--separate",), name) for name in ("gateway-1", "storage-1", "coordinator-1")),
]
"""Every kind of process, with the flags of a cluster that has it."""


class SteadyProducer:
    """Owns an idempotent producer that sends numbered records until told to stop, and what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        """`settings` with underscores for dots."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 5000,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []
        self.failed: list[Any] = []

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, count: int) -> None:
        """Return once `count` more records were acknowledged."""
        target = len(self.acknowledged) + count
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, (
                f"stuck at {len(self.acknowledged)} of {target}: {self.failed[:1]}"
            )
            time.sleep(0.01)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    str(number),
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, message: self._on_delivery(error, int(message.value())),
                )
            except BufferError:  # as full as it may be: wait for acknowledgements
                self._producer.poll(0.1)
                continue
            number += 1
            self._producer.poll(0)
        assert self._producer.flush(WAIT_SECONDS) == 0

    def _on_delivery(self, error: Any, number: int) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.failed.append(error)


def make_topic(cluster: Any, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(WAIT_SECONDS)
    return name


BETWEEN_LEADERS = (
    KafkaError._UNKNOWN_PARTITION,  # librdkafka's word for a partition without a leader
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""What librdkafka does not try again by itself when it asks for offsets."""


def end_offset(client: Consumer, topic: str, partition: int, seconds_max: float = WAIT_SECONDS) -> int:
    """The partition's end, once somebody leads it. After a fault no answer of one gateway says that all are led: it
    may be the one that was frozen, and not know yet what it missed.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            _, end = client.get_watermark_offsets(TopicPartition(topic, partition), seconds_max)
        except KafkaException as error:
            if error.args[0].code() not in BETWEEN_LEADERS or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            client.list_topics(topic, seconds_max)  # it would not ask again by itself who leads
        else:
            return end


def read_all(bootstrap: str, topic: str) -> list[list[int]]:
    """The values in each partition, in the order of their offsets."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    ends = {partition: end_offset(client, topic, partition) for partition in range(PARTITIONS)}
    client.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[list[int]] = [[] for _ in range(PARTITIONS)]
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(map(len, values)) < sum(ends.values()):
        assert time.monotonic() < deadline, f"read {sum(map(len, values))} of {sum(ends.values())}"
        for message in client.consume(1000, 1.0):
            assert message.error() is None, message.error()
            values[message.partition()].append(int(message.value()))
    client.close()
    return values


def assert_exactly_once(producer: SteadyProducer, values: list[list[int]]) -> None:
    assert producer.failed == []
    counts = Counter(number for partition in values for number in partition)
    assert [number for number, count in counts.items() if count > 1] == [], "records were doubled"
    assert [number for number in producer.acknowledged if number not in counts] == [], "records were lost"
    assert all(partition == sorted(partition) for partition in values), "records changed their order"


@pytest.mark.parametrize(("flags", "service"), SERVICES, ids=[name for _, name in SERVICES])
def test_idempotent_producer_survives_the_loss_of_a_service(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], service: str
) -> None:
    cluster = make_cluster(flags=flags)
    topic = make_topic(cluster, "survivor")
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        for _ in range(3):
            producer.wait_for_more(500)
            cluster.kill_and_wait(service)
            killed_at = time.monotonic()
            producer.wait_for_more(500)
            assert time.monotonic() - killed_at < 20, "clients took too long to recover"
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


@pytest.mark.parametrize(
    ("flags", "service"),
    [((), "broker-1"), (("--separate",), "storage-1"), (("--separate",), "gateway-1")],
    ids=["broker", "storage", "gateway"],
)
def test_idempotent_producers_survive_a_stop_in_order(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], service: str
) -> None:
    """Each has several requests under way, of a record each, and all wait for a sync: there is much to be answered."""
    cluster = make_cluster(flags=flags)
    settings = {"linger_ms": 0, "batch_num_messages": 1, "retry_backoff_ms": 50}
    topics = [make_topic(cluster, f"stopped-{number}", **{"flush.messages": "1"}) for number in range(2)]
    with contextlib.ExitStack() as stack:
        producers = [
            stack.enter_context(SteadyProducer(cluster.bootstrap, topic, **settings)) for topic in topics
        ]
        for _ in range(3):
            for producer in producers:
                producer.wait_for_more(60)
            cluster.restart(service)
        for producer in producers:
            producer.wait_for_more(60)
    for topic, producer in zip(topics, producers, strict=True):
        assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


@pytest.mark.parametrize(
    ("flags", "killed"),
    [
        ((), ("broker-1", "controller", "broker-1")),
        (("--separate",), ("coordinator-1", "storage-1", "gateway-1", "controller")),
    ],
    ids=["broker", "separate"],
)
def test_group_goes_on_when_its_coordinator_is_killed(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], killed: tuple[str, ...]
) -> None:
    cluster = make_cluster(flags=flags)
    topic = make_topic(cluster, "group-goes-on")
    client = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
        }
    )
    client.subscribe([topic])
    seen: list[int] = []

    def read_more(count: int) -> None:
        target, deadline = len(seen) + count, time.monotonic() + WAIT_SECONDS
        while len(seen) < target:
            assert time.monotonic() < deadline
            message = client.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(int(message.value()))

    with SteadyProducer(cluster.bootstrap, topic) as producer:
        read_more(300)
        for service in killed:
            client.commit(asynchronous=False)
            cluster.kill_and_wait(service)
            read_more(300)
        producer.wait_for_more(1)
    client.commit(asynchronous=False)
    positions = client.committed(client.assignment(), WAIT_SECONDS)
    assert sum(max(0, position.offset) for position in positions) == len(set(seen)) == len(seen)
    client.close()


def test_a_stop_and_a_start_find_everything_again(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=2)
    topic = make_topic(cluster, "kept", **{"retention.ms": "123456789"})
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        producer.wait_for_more(2000)
    reader = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "kept-group", "enable.auto.commit": False}
    )
    offsets = [TopicPartition(topic, partition, 10 + partition) for partition in range(PARTITIONS)]
    reader.commit(offsets=offsets, asynchronous=False)
    before = read_all(cluster.bootstrap, topic)
    cluster.restart()
    assert read_all(cluster.bootstrap, topic) == before
    assert_exactly_once(producer, before)
    committed = reader.committed(
        [TopicPartition(topic, partition) for partition in range(PARTITIONS)], WAIT_SECONDS
    )
    assert [position.offset for position in committed] == [10, 11, 12]
    reader.close()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert (
        admin.describe_configs([resource])[resource].result(WAIT_SECONDS)["retention.ms"].value == "123456789"
    )


def test_a_crash_of_everything_loses_nothing_acknowledged(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    topic = make_topic(cluster, "crashed", **{"segment.bytes": "1048576"})
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        producer.wait_for_more(1000)
        cluster.kill_supervisor()
        cluster.start()
        producer.wait_for_more(1000)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))
