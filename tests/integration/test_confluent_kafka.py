"""librdkafka through confluent-kafka: what a Python team's program does, unchanged."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30


@pytest.fixture
def admin(cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def make_topic(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    topic = NewTopic(
        name, partitions, 1, config={key.replace("_", "."): text for key, text in config.items()}
    )
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    return name


def consumer(cluster: Any, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def poll_records(client: Consumer, count: int) -> list[Any]:
    """Exactly `count` records, or fail with what came."""
    records: list[Any] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        message = client.poll(0.5)
        if message is None:
            continue
        assert message.error() is None, message.error()
        records.append(message)
    assert len(records) == count, f"{len(records)} of {count} records came"
    return records


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_sent(
    cluster: Any, admin: AdminClient, compression: str, *, idempotent: bool
) -> None:
    topic = make_topic(admin, f"round-trip-{compression}-{idempotent}")
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
        }
    )
    reports: list[Any] = []
    sent = [
        (f"key-{number}".encode() if number % 3 else None, b"value " * number, 1_700_000_000_000 + number)
        for number in range(200)
    ]
    for key, value, timestamp in sent:
        producer.produce(
            topic,
            value,
            key,
            timestamp=timestamp,
            headers=[("trace", b"\x00\xff"), ("empty", None)],
            on_delivery=lambda error, message: reports.append((error, message.offset())),
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert [error for error, _ in reports if error] == []
    assert sorted(offset for _, offset in reports) == list(range(200))

    client = consumer(cluster, f"readers-{topic}")
    client.subscribe([topic])
    got = poll_records(client, 200)
    client.close()
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in got] == sent
    assert [m.offset() for m in got] == list(range(200))
    assert all(m.headers() == [("trace", b"\x00\xff"), ("empty", None)] for m in got)


def test_group_resumes_at_its_committed_offset(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "resumes", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(90):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(WAIT_SECONDS) == 0
    first = consumer(cluster, "resumers", **{"enable.auto.commit": False})
    first.subscribe([topic])
    seen = [int(m.value()) for m in poll_records(first, 40)]
    first.commit(asynchronous=False)
    committed = first.committed(
        [TopicPartition(topic, partition) for partition in range(3)], timeout=WAIT_SECONDS
    )
    assert sum(max(0, position.offset) for position in committed) == 40
    first.close()
    second = consumer(cluster, "resumers")
    second.subscribe([topic])
    seen += [int(m.value()) for m in poll_records(second, 50)]
    second.close()
    assert sorted(seen) == list(range(90))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_rebalances_as_consumers_come_and_go(cluster: Any, admin: AdminClient, strategy: str) -> None:
    topic = make_topic(admin, f"rebalance-{strategy}", 4)
    settings = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
    first, second = (consumer(cluster, f"rebalancers-{strategy}", **settings) for _ in range(2))
    first.subscribe([topic])
    wait_for_assignments([first], [4])
    second.subscribe([topic])
    wait_for_assignments([first, second], [2, 2])
    first.close()
    wait_for_assignments([second], [4])
    second.close()


def wait_for_assignments(clients: list[Consumer], counts: list[int]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for client in clients:
            message = client.poll(0.1)
            assert message is None or message.error() is None
        if [len(client.assignment()) for client in clients] == counts:
            return
    pytest.fail(f"assignments are {[len(client.assignment()) for client in clients]}, not {counts}")


def test_static_member_comes_back_without_a_rebalance(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "static-members", 2)
    settings = {"group.instance.id": "worker-1", "session.timeout.ms": 30_000}
    first = consumer(cluster, "statics", **settings)
    first.subscribe([topic])
    wait_for_assignments([first], [2])
    generation = group_of(admin, "statics")
    first.close()  # a static member does not leave
    second = consumer(cluster, "statics", **settings)
    second.subscribe([topic])
    wait_for_assignments([second], [2])
    again = group_of(admin, "statics")
    assert [m.group_instance_id for m in again.members] == ["worker-1"]
    assert generation.state == again.state
    second.close()


def group_of(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)


def test_groups_are_listed_and_described(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "described", 2)
    client = consumer(cluster, "described-group", **{"client.id": "describer"})
    client.subscribe([topic])
    wait_for_assignments([client], [2])
    listed = admin.list_consumer_groups().result(WAIT_SECONDS)
    assert "described-group" in [group.group_id for group in listed.valid]
    description = group_of(admin, "described-group")
    assert description.state.name == "STABLE"
    assert description.partition_assignor == "range"
    (member,) = description.members
    assert member.client_id == "describer"
    assert member.host == "/127.0.0.1"
    assert len(member.assignment.topic_partitions) == 2
    client.close()


def test_offsets_for_times_and_watermarks(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "times")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for number in range(100):
        producer.produce(topic, b"x", timestamp=1_600_000_000_000 + number * 1000)
    assert producer.flush(WAIT_SECONDS) == 0
    client = consumer(cluster, "timers")
    assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS) == (0, 100)
    for at, expected in ((0, 0), (1_600_000_042_000, 42), (1_600_000_042_001, 43)):
        (found,) = client.offsets_for_times([TopicPartition(topic, 0, at)], timeout=WAIT_SECONDS)
        assert found.offset == expected
    client.close()
    latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    assert latest[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 99


def test_seek_pause_and_resume(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "seeking")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_SECONDS) == 0
    client = consumer(cluster, "seekers")
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    poll_records(client, 20)
    client.seek(TopicPartition(topic, 0, 15))
    assert [int(m.value()) for m in poll_records(client, 5)] == [15, 16, 17, 18, 19]
    client.pause([TopicPartition(topic, 0)])
    client.seek(TopicPartition(topic, 0, 0))
    assert client.poll(0.3) is None
    client.resume([TopicPartition(topic, 0)])
    assert int(poll_records(client, 1)[0].value()) == 0
    client.close()


def test_admin_creates_alters_enlarges_and_deletes(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(admin, "administered", 2, retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert before["retention.ms"].value == "3600000"
    assert before["segment.bytes"].value == "1073741824"
    assert before["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(WAIT_SECONDS)
    after = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert after["max.message.bytes"].value == "2000"
    assert after["retention.ms"].value == "604800000"
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_SECONDS)
    assert len(admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions) == 5
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 1_000_000})
    errors: list[Any] = []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)
    assert topic not in admin.list_topics(timeout=WAIT_SECONDS).topics


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("bad/name", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("zero-partitions", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("too-many-replicas", 1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-config", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", 1, 1, {"no.such.config": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_mistakes_are_answered_with_kafkas_code(
    admin: AdminClient, name: str, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(WAIT_SECONDS)
    assert raised.value.args[0].code() == code
    assert raised.value.args[0].str()


def test_topic_is_made_by_the_first_produce(cluster: Any, admin: AdminClient) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("made-by-producing", b"hello")
    assert producer.flush(WAIT_SECONDS) == 0
    assert "made-by-producing" in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_regular_expression_subscription_finds_new_topics(cluster: Any, admin: AdminClient) -> None:
    make_topic(admin, "regex-one")
    client = consumer(cluster, "regexers", **{"topic.metadata.refresh.interval.ms": 500})
    client.subscribe(["^regex-.*"])
    wait_for_assignments([client], [1])
    make_topic(admin, "regex-two")
    wait_for_assignments([client], [2])
    client.close()
