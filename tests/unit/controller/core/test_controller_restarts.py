"""What a registration says of the process before it: stopped properly or not, with its log directories or without."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.nodes import register_node
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import NO_LEADER, MetadataImage, config_key, topic_key

TOPIC = b"t" * 16
ONE, OTHER = b"1" * 16, b"2" * 16


def registered(
    image: MetadataImage,
    incarnation: str,
    directories: Sequence[bytes],
    previous: int | None = None,
    empty: Sequence[bytes] = (),
    offline: Sequence[str] = (),
) -> MetadataImage:
    node = md.NodeRecord(
        node_id=1,
        incarnation_id=incarnation,
        address="n",
        log_directory_ids=directories,
        previous_node_epoch=previous,
        empty_log_directory_ids=empty,
        offline_log_dirs=offline,
    )
    return image.apply(register_node(image, node).records, image.revision + 1)


def cluster(replicas: Sequence[int], isr: Sequence[int]) -> MetadataImage:
    """Node 1 with one or two directories, which leads alone or with node 2."""
    image = registered(MetadataImage(), "a", [ONE, OTHER])
    second = md.NodeRecord(node_id=2, incarnation_id="a", address="n")
    image = image.apply(register_node(image, second).records, image.revision + 1)
    partition = md.PartitionRecord(topic_id=TOPIC, leader=1, replicas=replicas, isr=isr)
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def state(image: MetadataImage) -> tuple[int, list[int], list[int], list[int]]:
    p = image.topics["t"].partitions[0]
    return p.leader, p.isr[:], p.eligible_leader_replicas[:], p.last_known_eligible_leader_replicas[:]


def test_what_is_kept_of_a_registration() -> None:
    image = registered(MetadataImage(), "a", [ONE], previous=7)
    assert list(image.nodes[1].log_directory_ids) == [ONE]
    assert not image.nodes[1].HasField("previous_node_epoch")


@pytest.mark.parametrize("previous", [None, 0, -1, 1])
def test_who_had_everything_goes_on_however_it_ended(previous: int | None) -> None:
    image = cluster((1, 2), (1,))
    image = registered(image, "b", [ONE, OTHER], previous)
    assert state(image) == (1, [1], [], [])
    assert image.topics["t"].partitions[0].leader_epoch == 1


@pytest.mark.parametrize(
    ("directories", "leader"),
    [([ONE, OTHER], 1), ([ONE, OTHER, b"3" * 16], 1), ([ONE], NO_LEADER), ([], NO_LEADER)],
)
def test_without_a_directory_it_leads_nothing_that_others_have(
    directories: Sequence[bytes], leader: int
) -> None:
    image = cluster((1, 2), (1,))
    known = image.nodes[1].node_epoch
    image = registered(image, "b", directories, known)
    assert state(image)[0] == leader
    again = registered(image, "c", directories, image.nodes[1].node_epoch)
    assert state(again)[0] == leader, "what was lost stays lost"


@pytest.mark.parametrize(
    ("directories", "empty", "leader"),
    [
        ([ONE], [OTHER], 1),
        ([ONE], [ONE], NO_LEADER),
        ([ONE], [b"3" * 16], NO_LEADER),
        ([b"3" * 16], [OTHER], NO_LEADER),
    ],
)
def test_a_directory_that_held_nothing_when_the_node_stopped_may_be_taken_away(
    directories: Sequence[bytes], empty: Sequence[bytes], leader: int
) -> None:
    image = cluster((1, 2), (1,))
    known = image.nodes[1].node_epoch
    left = registered(image, "b", directories, known, empty)
    assert state(left)[0] == leader
    assert not left.nodes[1].empty_log_directory_ids
    for previous in (None, known - 1, known + 1):
        assert state(registered(image, "b", directories, previous, empty))[0] == NO_LEADER


def test_a_directory_that_is_offline_is_not_lost() -> None:
    """It says itself which partitions it cannot find; when the directory is back, so are they."""
    image = registered(cluster((1, 2), (1,)), "b", [ONE], offline=["/b"])
    assert (state(image)[0], list(image.nodes[1].log_directory_ids)) == (1, [ONE, OTHER])
    again = registered(image, "c", [ONE], offline=["/b"])
    assert state(again)[0] == 1
    assert state(registered(again, "d", [ONE, OTHER]))[0] == 1, "it is back"
    assert state(registered(again, "d", [ONE, b"3" * 16]))[0] == NO_LEADER, (
        "there is another one in its place"
    )


def test_where_more_are_missing_than_are_offline_something_is_lost() -> None:
    image = registered(cluster((1, 2), (1,)), "b", [], offline=["/b"])
    assert (state(image)[0], list(image.nodes[1].log_directory_ids)) == (NO_LEADER, [])


def test_what_is_being_given_to_another_waits_for_an_offline_directory() -> None:
    """A partition of one replica that is reassigned has two, and still only one that ever had its records."""
    image = cluster((1,), (1,))
    (partition,) = image.topics["t"].partitions
    moving = md.PartitionRecord()
    moving.CopyFrom(partition)
    moving.replicas[:], moving.adding_replicas[:], moving.removing_replicas[:] = [2, 1], [2], [1]
    image = image.apply([partition_entry(moving)], image.revision + 1)
    image = registered(image, "b", [ONE], offline=["/b"])
    assert state(image)[0] == 1


def test_what_only_it_has_it_leads_even_without_a_directory() -> None:
    assert state(registered(cluster((1,), (1,)), "b", [ONE]))[0] == 1


def test_a_clean_process_stays_eligible_where_nothing_was_committed_without_it() -> None:
    image = cluster((1, 2), (1,))
    partition = md.PartitionRecord(
        topic_id=TOPIC, leader=2, replicas=(1, 2), isr=[2], eligible_leader_replicas=[1]
    )
    strict = md.ConfigRecord(values={"min.insync.replicas": "2"})
    config = md.MetadataRecord(key=config_key(TOPIC_RESOURCE, "t"), config=strict)
    image = image.apply([partition_entry(partition), config], image.revision + 1)
    epoch = image.nodes[1].node_epoch
    assert state(registered(image, "b", [ONE, OTHER], epoch)) == (2, [2], [1], [])
    assert state(registered(image, "b", [ONE, OTHER], epoch - 1)) == (2, [2], [], [])
