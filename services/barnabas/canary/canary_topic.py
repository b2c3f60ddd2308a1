"""The canary's topic: made if it is not there, widened as nodes join, and what it is now. All blocks: for a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from barnabas.canary import limits
from barnabas.canary.config import CanaryConfig
from barnabas.canary.gateway_client import CLIENT_ID, client_config


class FoundTopic(NamedTuple):
    """The topic as it is: one that was deleted and made again has another id."""

    topic_id: str
    end_offsets: Mapping[int, int]
    """The offset that the next record of each partition gets."""


def ensure_topic(config: CanaryConfig, bootstrap: str) -> FoundTopic:
    """Make the topic unless it is there, with a partition for every storage node.

    Raises KafkaException when the cluster does not answer or refuses.
    """
    shared = client_config(bootstrap, config.client_settings)
    admin = AdminClient(shared)
    found = admin.list_topics(timeout=limits.ADMIN_SECONDS_MAX)
    wanted = config.num_partitions or max(1, len(found.brokers))
    known = found.topics.get(config.topic)
    if known is None:
        _create(admin, config, wanted)
    elif not config.num_partitions and 0 < len(known.partitions) < wanted:
        partitions = NewPartitions(config.topic, wanted)
        _result_of(admin.create_partitions([partitions])[config.topic], KafkaError.INVALID_PARTITIONS)
    described = _result_of(admin.describe_topics(TopicCollection([config.topic]))[config.topic])
    consumer = Consumer({**shared, "group.id": CLIENT_ID, "enable.auto.commit": False})
    try:
        ends = _end_offsets(consumer, config.topic, sorted(each.id for each in described.partitions))
    finally:
        consumer.close()
    return FoundTopic(str(described.topic_id), ends)


def _create(admin: AdminClient, config: CanaryConfig, partitions: int) -> None:
    topic = NewTopic(
        config.topic,
        num_partitions=partitions,
        replication_factor=config.replication_factor,
        config={"retention.ms": str(config.retention_ms), "cleanup.policy": "delete"},
    )
    _result_of(admin.create_topics([topic])[config.topic], KafkaError.TOPIC_ALREADY_EXISTS)


def _result_of(future: Any, forgiven: int | None = None) -> Any:
    """What the cluster answered; None for the error code `forgiven`. Raises KafkaException."""
    try:
        return future.result(limits.ADMIN_SECONDS_MAX)
    except NoAnswer as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error
    except KafkaException as error:
        if error.args[0].code() != forgiven:
            raise
        return None


def _end_offsets(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    ends = {}
    for partition in partitions:
        position = TopicPartition(topic, partition)
        _, ends[partition] = consumer.get_watermark_offsets(position, limits.ADMIN_SECONDS_MAX, cached=False)
    return ends
