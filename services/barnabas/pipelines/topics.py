"""Topics as the demo needs them: reachable cluster, a fresh name, creation, reading one to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.config import PipelineConfig, PipelineError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

NAMES_TRIED_MAX = 1000
"""Bound on the search for a free topic name."""


def connect(config: PipelineConfig) -> AdminClient:
    """An admin client of a cluster that answers. Raises `PipelineError` if none does in time."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # The client reports each failed connection on stderr by itself; the error below says it once.
    admin = AdminClient({"bootstrap.servers": config.bootstrap, "log_level": 0})
    try:
        admin.list_topics(timeout=config.timeout_seconds)
    except KafkaException as error:
        raise PipelineError(
            f"no Kafka cluster answers at {config.bootstrap} ({error.args[0].str()}): "
            "start one with `make run`, or pass --bootstrap HOST:PORT"
        ) from error
    return admin


def free_name(wanted: str, existing: set[str], suffixes: tuple[str, ...] = ("",)) -> str:
    """`wanted`, or `wanted-2`, `wanted-3`, ...: the first for which no topic name + suffix exists."""
    for number in range(1, NAMES_TRIED_MAX):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if not any(name + suffix in existing for suffix in suffixes):
            return name
    raise PipelineError(f"topics {wanted} to {wanted}-{NAMES_TRIED_MAX - 1} all exist: pass another --topic")


def create_topic(admin: AdminClient, config: PipelineConfig, name: str, settings: dict[str, str]) -> None:
    """Create topic `name` and wait for the answer. Raises `PipelineError` with the cluster's reason."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    topic = NewTopic(
        name,
        num_partitions=config.partitions,
        replication_factor=config.replication_factor,
        config=settings,
    )
    future = admin.create_topics([topic], request_timeout=config.timeout_seconds)[name]
    try:
        future.result()
    except KafkaException as error:
        raise PipelineError(f"topic {name} was not created: {error.args[0].str()}") from error


def read_to_end(config: PipelineConfig, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every record (key, value) that `topic` holds now, partition after partition, each in offset order.

    Raises `PipelineError` if the cluster stops answering before the end.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": config.bootstrap,
            "group.id": f"{topic}-reader",  # librdkafka wants one; with assign() no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    records: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    try:
        found = consumer.list_topics(topic, timeout=config.timeout_seconds).topics[topic].partitions
        waiting = set(found)
        records = {partition: [] for partition in sorted(found)}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
        while waiting:
            message = consumer.poll(config.timeout_seconds)
            if message is None:
                raise PipelineError(
                    f"topic {topic}: no answer for {config.timeout_seconds:g} s while reading"
                )
            error = message.error()
            partition = message.partition()
            assert partition is not None, "an assigned consumer hands out records and ends of partitions only"
            if error is None:
                records[partition].append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(partition)
            else:
                raise PipelineError(f"topic {topic}: {error.str()}")
    except KafkaException as error:
        raise PipelineError(f"topic {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return [record for held in records.values() for record in held]
