"""Leader elections as they are counted from what is stored."""

from __future__ import annotations

from barnabas.controller.counts import ControllerCounts
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage, partition_key, topic_key

TOPIC_ID = b"t" * 16


def partition(index: int, leader: int, isr: tuple[int, ...] = (1, 2)) -> MetadataRecord:
    return MetadataRecord(
        key=partition_key(TOPIC_ID, index),
        partition=PartitionRecord(
            topic_id=TOPIC_ID, partition=index, leader=leader, replicas=(1, 2, 3), isr=isr
        ),
    )


def image(*partitions: MetadataRecord) -> MetadataImage:
    topic = TopicRecord(name="t", topic_id=TOPIC_ID, partition_count=len(partitions))
    return MetadataImage().apply([*partitions, MetadataRecord(key=topic_key("t"), topic=topic)], 1)


def counted(before: MetadataImage, *after: MetadataRecord) -> tuple[int, int, int]:
    """(changes that elected, partitions elected, elected from outside the ISR)."""
    counts = ControllerCounts()
    counts.on_stored(before, after, 7.0)
    return sum(counts.election_times.counts), counts.elected_partitions, counts.unclean_elections


def test_a_new_topic_is_no_election() -> None:
    assert counted(MetadataImage(), partition(0, 1)) == (0, 0, 0)


def test_leaders_that_change_are_one_election_of_many_partitions() -> None:
    before = image(partition(0, 1), partition(1, 1), partition(2, NO_LEADER), partition(3, 2))
    changed = partition(0, 2), partition(1, 2), partition(2, 1), partition(3, 2)
    assert counted(before, *changed) == (1, 3, 0)


def test_a_partition_that_loses_its_leader_elects_none() -> None:
    assert counted(image(partition(0, 1)), partition(0, NO_LEADER)) == (0, 0, 0)


def test_a_leader_from_outside_the_isr_is_unclean() -> None:
    assert counted(image(partition(0, 1, (1,))), partition(0, 3, (3,))) == (1, 1, 1)


def test_a_leader_that_a_reassignment_brings_is_clean() -> None:
    """It came to be in sync in the change that ended the reassignment (KAFKA-19212)."""
    moving, moved = partition(0, 1, (1,)), partition(0, 3, (3,))
    moving.partition.adding_replicas[:] = (3,)
    assert counted(image(moving), moved) == (1, 1, 0)
    still_moving = partition(0, 3, (3,))
    still_moving.partition.adding_replicas[:] = (3,)
    assert counted(image(moving), still_moving) == (1, 1, 1)
