"""Settings of every kind through Kafka's own tool, what they do at once, and what `barnabas up --override` sets."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from kafka_tools import Output, run_tool
from raw_client import METADATA, RawConnection
from running_cluster import Cluster

WAIT_SECONDS: Final = 20.0
OVERRIDES: Final = {
    "num.partitions": "3",
    "offsets.topic.num.partitions": "5",
    "auto.create.topics.enable": "false",
    "log.retention.hours": "24",
    "log.retention.check.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.min.session.timeout.ms": "100",
    "ssl.keystore.password": "secret",
}

INCREMENTAL_ALTER_CONFIGS: Final = 44
DONE: Final = (0, "")
BROKER: Final = ResourceType.BROKER
TOPIC: Final = ResourceType.TOPIC


@pytest.fixture(scope="module")
def configured() -> Iterator[Cluster]:
    flags = tuple(flag for name, text in OVERRIDES.items() for flag in ("--override", f"{name}={text}"))
    with Cluster(flags=flags) as running:
        yield running


@pytest.fixture(scope="module")
def admin(configured: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": configured.bootstrap})


def configs(cluster: Cluster, *arguments: str, status: int = 0) -> Output:
    return run_tool("configs", "--bootstrap-server", cluster.bootstrap, *arguments, status=status)


def described(output: Output) -> dict[str, tuple[str, str]]:
    """Setting to its value and its synonyms, as the tool prints them."""
    rows = re.findall(r"^  ([^=\s]+)=(.*?) sensitive=\S+ synonyms=\{(.*)\}$", output.stdout, re.MULTILINE)
    return {name: (value, synonyms) for name, value, synonyms in rows}


def alter(cluster: Cluster, broker: str, setting: str, value: str | None) -> tuple[int, str]:
    """Set or delete one setting of a broker, or for no broker of all; over a raw socket, as librdkafka cannot name
    all. Returns code and message."""
    change = {"name": setting, "config_operation": 1 if value is None else 0, "value": value}
    resource = {"resource_type": BROKER.value, "resource_name": broker, "configs": [change]}
    with RawConnection(cluster.port) as connection:
        answer = connection.ask(
            INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
        )
    (result,) = answer.responses
    return int(result.error_code), result.error_message or ""


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    return found


def create(admin: AdminClient, name: str, partitions: int = 1, **settings: str) -> None:
    topic = NewTopic(name, partitions, config=settings)
    admin.create_topics([topic])[name].result(WAIT_SECONDS)


def produce(cluster: Cluster, topic: str, *values: bytes, timestamp_ms: int = 0) -> list[KafkaError | None]:
    """One batch a value; the error of each, or None."""
    errors: list[KafkaError | None] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 20_000_000, "linger.ms": 0}
    producer = Producer(settings)
    for value in values:
        producer.produce(
            topic,
            value,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _: errors.append(error),
        )
        assert producer.flush(WAIT_SECONDS) == 0
    return errors


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


# -- Kafka's own tool -----------------------------------------------------------------------------------------------


def test_everything_of_a_broker_and_of_a_topic(configured: Cluster, admin: AdminClient) -> None:
    broker = described(
        configs(configured, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    )
    assert len(broker) == 340
    assert broker["num.partitions"] == (
        "3",
        "STATIC_BROKER_CONFIG:num.partitions=3, DEFAULT_CONFIG:num.partitions=1",
    )
    assert broker["node.id"] == ("1", "STATIC_BROKER_CONFIG:node.id=1")
    assert broker["listeners"][0] == f"PLAINTEXT://{configured.bootstrap}"
    assert broker["log.dirs"][0] == str(configured.data_dir / "node-1")
    assert broker["ssl.keystore.password"] == ("null", "STATIC_BROKER_CONFIG:ssl.keystore.password=null")
    create(admin, "plain")
    topic = described(
        configs(configured, "--entity-type", "topics", "--entity-name", "plain", "--describe", "--all")
    )
    assert len(topic) == 33
    assert topic["retention.ms"] == ("86400000", "")
    assert topic["max.message.bytes"] == ("1048588", "DEFAULT_CONFIG:message.max.bytes=1048588")


def test_defaults_of_all_brokers(configured: Cluster) -> None:
    everyone = ("--entity-type", "brokers", "--entity-default")
    configs(configured, *everyone, "--alter", "--add-config", "log.cleaner.threads=2")
    assert described(configs(configured, *everyone, "--describe")) == {
        "log.cleaner.threads": ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2")
    }
    configs(configured, *everyone, "--alter", "--delete-config", "log.cleaner.threads")
    assert described(configs(configured, *everyone, "--describe")) == {}
    refused = configs(configured, *everyone, "--alter", "--add-config", "num.partitions=9", status=1)
    assert "Cannot update these configs dynamically: [num.partitions]" in refused.stdout + refused.stderr


def test_groups(configured: Cluster) -> None:
    group = ("--entity-type", "groups", "--entity-name", "readers")
    # The broker's file lowered the bound that Kafka has by default.
    configs(configured, *group, "--alter", "--add-config", "consumer.session.timeout.ms=12000")
    synonyms = (
        "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=12000, "
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
    )
    assert described(configs(configured, *group, "--describe")) == {
        "consumer.session.timeout.ms": ("12000", synonyms)
    }
    assert len(described(configs(configured, *group, "--describe", "--all"))) == 17
    configs(configured, *group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert described(configs(configured, *group, "--describe")) == {}
    refused = configs(
        configured, *group, "--alter", "--add-config", "consumer.session.timeout.ms=9999", status=1
    )
    assert "group.consumer.min.session.timeout.ms" in refused.stdout + refused.stderr


def test_client_metrics(configured: Cluster) -> None:
    subscription = ("--entity-type", "client-metrics", "--entity-name", "all")
    added = "metrics=[org.apache.kafka.consumer.],interval.ms=1000,match=[client_id=app-.*]"
    configs(configured, *subscription, "--alter", "--add-config", added)
    found = described(configs(configured, *subscription, "--describe"))
    assert {name: value for name, (value, _) in found.items()} == {
        "metrics": "org.apache.kafka.consumer.",
        "interval.ms": "1000",
        "match": "client_id=app-.*",
    }
    configs(configured, *subscription, "--alter", "--delete-config", "metrics,interval.ms,match")
    refused = configs(configured, *subscription, "--alter", "--add-config", "colour=blue", status=1)
    assert "Unknown client metrics configuration: colour" in refused.stdout + refused.stderr


# -- what they do at once -------------------------------------------------------------------------------------------


def test_the_largest_message(configured: Cluster, admin: AdminClient) -> None:
    create(admin, "large")
    large = b"x" * 2_000_000
    (refused,) = produce(configured, "large", large)
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert alter(configured, "", "message.max.bytes", "3000000") == DONE
    assert produce(configured, "large", large) == [None]
    assert alter(configured, "1", "message.max.bytes", "1000") == DONE
    (refused,) = produce(configured, "large", b"x" * 2_000)
    assert refused is not None
    assert alter(configured, "1", "message.max.bytes", None) == DONE
    assert alter(configured, "", "message.max.bytes", None) == DONE


def test_a_value_that_the_metadata_store_cannot_take(configured: Cluster, admin: AdminClient) -> None:
    """It is refused for what it is, by a code that no client tries again on, and nothing is changed."""
    setting, replicas = "follower.replication.throttled.replicas", ",".join(["0:1"] * 150_000)
    create(admin, "too-much")
    before = describe(admin, TOPIC, "too-much")[setting].value
    entry = ConfigEntry(setting, replicas, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(TOPIC, "too-much", incremental_configs=[entry])
    (refused,) = admin.incremental_alter_configs([resource]).values()
    with pytest.raises(KafkaException, match="the metadata store takes") as told:
        refused.result(timeout=WAIT_SECONDS)
    assert told.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert describe(admin, TOPIC, "too-much")[setting].value == before


def test_retention_and_segments(configured: Cluster, admin: AdminClient) -> None:
    create(admin, "short")
    assert alter(configured, "", "log.segment.bytes", str(1024 * 1024)) == DONE
    assert produce(configured, "short", *[b"x" * 700_000] * 4) == [None] * 4
    folder = configured.data_dir / "node-1" / "short-0"
    assert len(list(folder.glob("*.log"))) == 4
    assert alter(configured, "", "log.retention.bytes", "1000000") == DONE
    wait_until(lambda: len(list(folder.glob("*.log"))) == 2)
    assert alter(configured, "1", "log.retention.ms", "1") == DONE
    wait_until(lambda: not (folder / "00000000000000000003.log").exists())
    for broker, name in (("1", "log.retention.ms"), ("", "log.retention.bytes"), ("", "log.segment.bytes")):
        assert alter(configured, broker, name, None) == DONE


# -- what a file sets -----------------------------------------------------------------------------------------------


def test_overrides_count_where_they_matter(configured: Cluster, admin: AdminClient) -> None:
    create(admin, "numberless", partitions=-1)
    topics = admin.list_topics(timeout=WAIT_SECONDS).topics
    assert len(topics["numberless"].partitions) == 3
    retention = describe(admin, TOPIC, "numberless")["retention.ms"]
    assert retention.value == str(24 * 3_600_000)
    with RawConnection(configured.port) as connection:
        answer = connection.ask(
            METADATA, 12, {"topics": [{"name": "nobody"}], "allow_auto_topic_creation": True}
        )
    assert answer.topics[0].error_code == 3
    consumer = Consumer({"bootstrap.servers": configured.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("numberless", 0, 0)], asynchronous=False)
    consumer.close()
    topics = admin.list_topics(timeout=WAIT_SECONDS).topics
    assert len(topics["__consumer_offsets"].partitions) == 5


def test_a_wrong_setting_in_a_nodes_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("node.id=1\nlog.dirs=/nowhere\ncontrollers=127.0.0.1:1\nlog.retention.hour=5\n")
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.storage", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "Unknown broker setting log.retention.hour: did you mean log.retention.hours?" in done.stderr


def test_a_restart_keeps_what_was_set(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(flags=("--override", "num.io.threads=4"))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert alter(cluster, "1", "log.cleaner.threads", "2") == DONE
    cluster.kill_and_wait("storage-1")
    found = describe(admin, BROKER, "1")
    assert (found["log.cleaner.threads"].value, found["num.io.threads"].value) == ("2", "4")
    assert ConfigSource(found["num.io.threads"].source) is ConfigSource.STATIC_BROKER_CONFIG
    code, message = alter(cluster, "1", "num.io.threads", "9")
    assert (code, "at most twice the current value 4" in message) == (42, True)
