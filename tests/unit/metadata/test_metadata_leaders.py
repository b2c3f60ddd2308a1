"""Who leads, asked by name and by id, and the code when nobody does."""

from __future__ import annotations

import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage, partition_key, topic_key
from barnabas.metadata.leaders import NOBODY_LEADS, current_leader, led_partition

TOPIC_ID = b"sixteen bytes id"


@pytest.fixture
def image() -> MetadataImage:
    partitions = [
        PartitionRecord(topic_id=TOPIC_ID, partition=0, leader=7, leader_epoch=3),
        PartitionRecord(topic_id=TOPIC_ID, partition=1, leader=-1, leader_epoch=4),
    ]
    topic = TopicRecord(name="orders", topic_id=TOPIC_ID, partition_count=2)
    records = [
        MetadataRecord(key=topic_key("orders"), topic=topic),
        *(MetadataRecord(key=partition_key(TOPIC_ID, each.partition), partition=each) for each in partitions),
    ]
    return MetadataImage().apply(records, 1)


@pytest.mark.parametrize("topic", ["orders", TOPIC_ID])
def test_the_leader_by_name_and_by_id(image: MetadataImage, topic: str | bytes) -> None:
    record = led_partition(image, topic, 0)
    assert isinstance(record, PartitionRecord)
    assert (record.topic_id, record.leader) == (TOPIC_ID, 7)
    assert current_leader(image, topic, 0) == (7, 3)


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("orders", 1, NOBODY_LEADS),
        (TOPIC_ID, 1, NOBODY_LEADS),
        ("orders", 2, ErrorCode.unknown_topic_or_partition),
        (TOPIC_ID, -1, ErrorCode.unknown_topic_or_partition),
        ("unknown", 0, ErrorCode.unknown_topic_or_partition),
        ("", 0, ErrorCode.unknown_topic_or_partition),
        (bytes(16), 0, ErrorCode.unknown_topic_id),
        (b"", 0, ErrorCode.unknown_topic_id),
    ],
)
def test_nobody_leads(image: MetadataImage, topic: str | bytes, partition: int, code: ErrorCode) -> None:
    assert led_partition(image, topic, partition) is code
    assert current_leader(image, topic, partition) == ((NO_LEADER, 4) if code is NOBODY_LEADS else None)
