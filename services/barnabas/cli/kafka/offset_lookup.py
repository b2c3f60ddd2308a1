"""Offsets of many partitions at once: the first, the last, or the first at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicPartition

from barnabas.cli.kafka import answers
from barnabas.cli.kafka.admin_types import OffsetSpec
from barnabas.kernel.kafka_values import EARLIEST, LATEST, MAX_TIMESTAMP

PartitionKey = tuple[str, int]
"""(topic, partition)."""


def offset_spec(timestamp: int) -> Any:
    """librdkafka's name for a timestamp in ms or one of Kafka's special ones."""
    special = {
        LATEST: OffsetSpec.latest,
        EARLIEST: OffsetSpec.earliest,
        MAX_TIMESTAMP: OffsetSpec.max_timestamp,
    }
    return special[timestamp]() if timestamp in special else OffsetSpec.for_timestamp(timestamp)


def look_up(admin: Any, partitions: Iterable[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
    """The offset of each partition; -1 where no record is as late as `timestamp`. Raises KafkaException."""
    asked = {TopicPartition(*key): offset_spec(timestamp) for key in partitions}
    if not asked:
        return {}
    return {
        (part.topic, part.partition): result.offset
        for part, result in answers.all_of(admin.list_offsets(asked)).items()
    }


def clamped(offsets: Mapping[PartitionKey, int], admin: Any) -> dict[PartitionKey, int]:
    """The same offsets, moved into what each partition's log holds."""
    first, last = look_up(admin, offsets, EARLIEST), look_up(admin, offsets, LATEST)
    return {key: min(max(offset, first[key]), last[key]) for key, offset in offsets.items()}
