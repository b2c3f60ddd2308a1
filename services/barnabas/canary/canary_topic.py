"""The canary's topic: made if it is not there, and where its partitions end. Everything blocks: for a thread."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.canary import limits
from barnabas.canary.config import CanaryConfig
from barnabas.canary.gateway_client import CLIENT_ID, client_config


def ensure_topic(config: CanaryConfig, bootstrap: str) -> Mapping[int, int]:
    """Make the topic unless it is there; returns the end offset of each of its partitions.

    Raises KafkaException when the cluster does not answer or refuses.
    """
    shared = client_config(bootstrap, config.client_settings)
    admin = AdminClient(shared)
    found = admin.list_topics(timeout=limits.ADMIN_SECONDS_MAX)
    if config.topic not in found.topics:
        topic = NewTopic(
            config.topic,
            num_partitions=config.num_partitions or max(1, len(found.brokers)),
            replication_factor=config.replication_factor,
            config={"retention.ms": str(config.retention_ms), "cleanup.policy": "delete"},
        )
        _create(admin, topic)
    consumer = Consumer({**shared, "group.id": CLIENT_ID, "enable.auto.commit": False})
    try:
        return _end_offsets(consumer, config.topic)
    finally:
        consumer.close()


def _create(admin: AdminClient, topic: NewTopic) -> None:
    timeout = limits.ADMIN_SECONDS_MAX
    futures = admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)
    try:
        futures[topic.topic].result(timeout)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    found = consumer.list_topics(topic, timeout=limits.ADMIN_SECONDS_MAX).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    ends = {}
    for partition in sorted(found.partitions):
        position = TopicPartition(topic, partition)
        _, ends[partition] = consumer.get_watermark_offsets(position, limits.ADMIN_SECONDS_MAX, cached=False)
    return ends
