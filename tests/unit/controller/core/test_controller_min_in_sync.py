"""min.insync.replicas of topics that have none of their own: the smallest that any node may go by."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.controller.core.configs import alter_configs
from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.min_in_sync import MinInSync
from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.kernel.kafka_values import BROKER_RESOURCE, SET_CONFIG, TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, topic_key

TOPIC = b"t" * 16


def node(node_id: int, number: str | None, incarnation: str = "a") -> md.NodeRecord:
    configs = {} if number is None else {"min.insync.replicas": number}
    return md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address="n", configs=configs)


def cluster(*numbers: str | None) -> MetadataImage:
    """Nodes from 1 on with these numbers in their files, and a topic whose ISR is nodes 1 and 2."""
    image = MetadataImage()
    for node_id, number in enumerate(numbers, 1):
        image = image.apply(register_node(image, node(node_id, number)).records, image.revision + 1)
    replicas = range(1, len(numbers) + 1)
    partition = md.PartitionRecord(topic_id=TOPIC, leader=1, replicas=replicas, isr=[1, 2])
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def altered(image: MetadataImage, resource_type: int, name: str, value: str) -> MetadataImage:
    operation = pb.ConfigOperation(name="min.insync.replicas", operation=SET_CONFIG, value=value)
    change = pb.ConfigResourceChange(resource_type=resource_type, resource_name=name, operations=[operation])
    decision = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[change]))
    assert not decision.response.results[0].error_code, decision.response.results[0].error_message
    return image.apply(decision.records, image.revision + 1)


def without_second(image: MetadataImage) -> MetadataImage:
    return image.apply(fence_node(image, 2).records, image.revision + 1)


def partition_of(image: MetadataImage) -> md.PartitionRecord:
    return image.topics["t"].partitions[0]


@pytest.mark.parametrize(
    ("numbers", "expected"), [((None,), 1), (("2", "2", "2"), 2), (("2", None, "3"), 1), (("2", "3"), 2)]
)
def test_it_is_the_smallest_of_the_nodes(numbers: tuple[str | None, ...], expected: int) -> None:
    assert MinInSync(cluster(*numbers)).of("t") == expected


def test_dynamic_values_stand_before_files_and_the_topics_own_before_all() -> None:
    image = altered(cluster(None, None, None), BROKER_RESOURCE, "", "3")
    assert MinInSync(image).of("t") == 3
    image = altered(image, BROKER_RESOURCE, "2", "2")
    assert MinInSync(image).of("t") == 2
    assert MinInSync(altered(image, TOPIC_RESOURCE, "t", "4")).of("t") == 4


def test_without_nodes_it_is_kafkas_default() -> None:
    assert MinInSync(MetadataImage()).of("t") == 1


def test_who_leaves_under_the_nodes_number_stays_eligible() -> None:
    assert partition_of(without_second(cluster("2", "2", "2"))).eligible_leader_replicas == [2]
    assert partition_of(without_second(cluster("2", "2", "1"))).eligible_leader_replicas == []


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_lower_number_ends_who_was_eligible_by_the_higher(broker: str) -> None:
    before = without_second(cluster("2", "2", "2"))
    after = altered(before, BROKER_RESOURCE, broker, "1")
    assert partition_of(after).eligible_leader_replicas == []
    assert partition_of(after).partition_epoch == partition_of(before).partition_epoch + 1
    assert partition_of(after).leader_epoch == partition_of(before).leader_epoch


def test_a_process_that_comes_with_a_lower_number_ends_it_too() -> None:
    before = without_second(cluster("2", "2", "2"))
    decision = register_node(before, node(3, "1", incarnation="b"))
    after = before.apply(decision.records, before.revision + 1)
    assert partition_of(after).eligible_leader_replicas == []
    assert partition_of(after).partition_epoch == partition_of(before).partition_epoch + 1


def test_one_decision_changes_a_partition_once() -> None:
    before = without_second(cluster("2", "2", "2"))
    decision = register_node(before, node(1, "1", incarnation="b"))
    assert set(Counter(record.key for record in decision.records).values()) == {1}
    after = before.apply(decision.records, before.revision + 1)
    assert partition_of(after).partition_epoch == partition_of(before).partition_epoch + 1


def test_the_same_number_elsewhere_changes_nothing() -> None:
    before = without_second(cluster("2", "2", "2"))
    after = altered(before, BROKER_RESOURCE, "", "2")
    assert partition_of(after) == partition_of(before)
