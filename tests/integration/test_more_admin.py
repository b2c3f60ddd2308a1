"""What administrators do beside topics: groups and offsets deleted, logs cut short, log directories looked at."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka_tools import Output, run_tool

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 30


@pytest.fixture
def admin(cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def at(cluster: Any, tool: str, *arguments: str) -> Output:
    return run_tool(tool, "--bootstrap-server", cluster.bootstrap, *arguments)


def make_topic(cluster: Any, admin: AdminClient, name: str, records: int, **config: str) -> str:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(records):
        producer.produce(name, f"value {number}", key=b"k")
    assert producer.flush(WAIT_SECONDS) == 0
    return name


def commit(cluster: Any, group: str, *topics: str) -> None:
    """A lone consumer commits offset 1 of each topic's partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1) for topic in topics], asynchronous=False)
    consumer.close()


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as raised:
        future.result(WAIT_SECONDS)
    return int(raised.value.args[0].code())


def test_groups_are_deleted(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, admin, "admin-groups", 3)
    commit(cluster, "admin-idle", topic)
    busy = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "admin-busy"})
    busy.subscribe([topic])
    deadline = time.monotonic() + WAIT_SECONDS
    while not busy.assignment():
        assert time.monotonic() < deadline
        busy.poll(0.1)
    deleted = admin.delete_consumer_groups(["admin-idle", "admin-busy", "admin-nobody"])
    deleted["admin-idle"].result(WAIT_SECONDS)
    assert code_of(deleted["admin-busy"]) == KafkaError.NON_EMPTY_GROUP
    assert code_of(deleted["admin-nobody"]) == KafkaError.GROUP_ID_NOT_FOUND
    busy.close()
    groups = admin.list_consumer_groups().result(WAIT_SECONDS).valid
    assert not [group for group in groups if group.group_id == "admin-idle"]


def test_records_are_deleted(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, admin, "admin-records", 10)
    partition = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([partition])[partition].result(WAIT_SECONDS)
    assert deleted.low_watermark == 4
    earliest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})
    assert earliest[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 4
    beyond = TopicPartition(topic, 0, 11)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE
    kept = TopicPartition(make_topic(cluster, admin, "admin-kept", 1, cleanup_policy="compact"), 0, 1)
    assert code_of(admin.delete_records([kept])[kept]) == KafkaError.POLICY_VIOLATION


def test_configs_are_replaced(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, admin, "admin-configs", 0, retention_ms="5000")
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "7000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        replaced = admin.alter_configs([resource])
    replaced[resource].result(WAIT_SECONDS)
    found = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert (found["segment.ms"].value, found["retention.ms"].value) == ("7000", "604800000")


def test_kafkas_own_tools(cluster: Any, admin: AdminClient, tmp_path: Path) -> None:
    one = make_topic(cluster, admin, "admin-shell-one", 6)
    two = make_topic(cluster, admin, "admin-shell-two", 1)
    commit(cluster, "admin-shell", one, two)
    groups = ("consumer-groups", "--group", "admin-shell")
    at(cluster, *groups, "--delete-offsets", "--topic", one)
    described = at(cluster, *groups, "--describe").lines
    assert [line.split()[1] for line in described if line.startswith("admin-shell ")] == [two]
    deleted = at(cluster, *groups, "--delete")
    assert "Deletion of requested consumer groups ('admin-shell') was successful." in deleted.stdout
    cut = {"version": 1, "partitions": [{"topic": one, "partition": 0, "offset": -1}]}
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    done = at(cluster, "delete-records", "--offset-json-file", str(tmp_path / "cut.json"))
    assert f"partition: {one}-0\tlow_watermark: 6" in done.stdout
    shown = at(cluster, "log-dirs", "--describe", "--topic-list", f"{one},{two}")
    (broker,) = json.loads(shown.lines[-1])["brokers"]
    (log_dir,) = broker["logDirs"]
    assert log_dir["error"] is None
    sizes = {row["partition"]: (row["size"] > 0, row["offsetLag"]) for row in log_dir["partitions"]}
    assert sizes == {f"{one}-0": (True, 0), f"{two}-0": (True, 0)}
