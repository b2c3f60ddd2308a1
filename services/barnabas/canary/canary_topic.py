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
from barnabas.kernel.clock import Clock


class FoundTopic(NamedTuple):
    """The topic as it is: one that was deleted and made again has another id."""

    topic_id: str
    end_offsets: Mapping[int, int]
    """The offset that the next record of each partition gets."""


class _TimeLeft:
    """What is left of the time for one look at the topic, all its requests together: others wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline = clock.monotonic() + limits.ADMIN_SECONDS_MAX

    def seconds(self) -> float:
        return max(limits.REQUEST_SECONDS_MIN, self._deadline - self._clock.monotonic())


def ensure_topic(config: CanaryConfig, bootstrap: str, clock: Clock) -> FoundTopic:
    """Make the topic unless it is there, with a partition for every storage node.

    Raises KafkaException when the cluster does not answer or refuses.
    """
    left = _TimeLeft(clock)
    shared = client_config(bootstrap, config.client_settings)
    admin = AdminClient(shared)
    found = admin.list_topics(timeout=left.seconds())
    wanted = config.num_partitions or max(1, len(found.brokers))
    known = found.topics.get(config.topic)
    if known is None:
        _create(admin, config, wanted, left)
    elif not config.num_partitions and 0 < len(known.partitions) < wanted:
        partitions = NewPartitions(config.topic, wanted)
        _result_of(admin.create_partitions([partitions])[config.topic], left, KafkaError.INVALID_PARTITIONS)
    described = _result_of(admin.describe_topics(TopicCollection([config.topic]))[config.topic], left)
    consumer = Consumer({**shared, "group.id": CLIENT_ID, "enable.auto.commit": False})
    try:
        ends = _end_offsets(consumer, config.topic, sorted(each.id for each in described.partitions), left)
    finally:
        consumer.close()
    return FoundTopic(str(described.topic_id), ends)


def _create(admin: AdminClient, config: CanaryConfig, partitions: int, left: _TimeLeft) -> None:
    topic = NewTopic(
        config.topic,
        num_partitions=partitions,
        replication_factor=config.replication_factor,
        config={"retention.ms": str(config.retention_ms), "cleanup.policy": "delete"},
    )
    _result_of(admin.create_topics([topic])[config.topic], left, KafkaError.TOPIC_ALREADY_EXISTS)


def _result_of(future: Any, left: _TimeLeft, forgiven: int | None = None) -> Any:
    """What the cluster answered; None for the error code `forgiven`. Raises KafkaException."""
    try:
        return future.result(left.seconds())
    except NoAnswer as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error
    except KafkaException as error:
        if error.args[0].code() != forgiven:
            raise
        return None


def _end_offsets(
    consumer: Consumer, topic: str, partitions: Iterable[int], left: _TimeLeft
) -> dict[int, int]:
    ends = {}
    for partition in partitions:
        position = TopicPartition(topic, partition)
        _, ends[partition] = consumer.get_watermark_offsets(position, left.seconds(), cached=False)
    return ends
