"""Nodes whose log directories are cordoned: they keep what they have and get nothing new."""

from __future__ import annotations

import itertools
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.configs import alter_configs, replace_configs
from barnabas.controller.core.cordons import is_cordoned
from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.internal_topics import grow_internal_topics
from barnabas.controller.core.nodes import register_node
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.controller.core.topics import create_topics
from barnabas.kernel.cordoned import are_all_cordoned, cordoned_directories
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, DELETE_CONFIG, SET_CONFIG
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage

DEFAULTS = ClusterDefaults(offsets_topic_num_partitions=2)
DIRECTORIES = "/disk-1, /disk-2"

_ids = itertools.count(1)


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def cluster(nodes: int) -> MetadataImage:
    image = MetadataImage()
    for node_id in range(1, nodes + 1):
        configs = {"log.dirs": DIRECTORIES}
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address="n", configs=configs)
        image = after(image, register_node(image, node))
    return image


def cordon(image: MetadataImage, node_id: int, directories: str | None) -> MetadataImage:
    """Set cordoned.log.dirs of a node, or take it away with None."""
    operation = pb.ConfigOperation(
        name="cordoned.log.dirs",
        operation=DELETE_CONFIG if directories is None else SET_CONFIG,
        value=directories,
    )
    change = pb.ConfigResourceChange(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), operations=[operation]
    )
    decision = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[change]))
    assert decision.response.results[0].error_code == 0, decision.response
    return after(image, decision)


def create(
    image: MetadataImage, name: str, factor: int, partitions: int = 6
) -> tuple[MetadataImage, pb.ResourceResult]:
    topic = pb.NewTopic(name=name, partition_count=partitions, replication_factor=factor)
    request = pb.CreateTopicsRequest(topics=[topic])
    decision = create_topics(image, request, DEFAULTS, lambda: next(_ids).to_bytes(16, "big"))
    return after(image, decision), decision.response.topics[0].result


def nodes_of(image: MetadataImage, name: str) -> set[int]:
    return {node for partition in image.topics[name].partitions for node in partition.replicas}


@pytest.mark.parametrize("directories", ["*", "/disk-1,/disk-2", "/disk-2, /disk-1/"])
def test_new_topics_and_partitions_go_to_others(directories: str) -> None:
    image, _ = create(cluster(3), "before", 3)
    image = cordon(image, 2, directories)
    image, _ = create(image, "after", 2)
    assert nodes_of(image, "before") == {1, 2, 3}, "what is there stays"
    assert nodes_of(image, "after") == {1, 3}
    more = pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="after", partition_count=12)])
    image = after(image, create_partitions(image, more))
    assert nodes_of(image, "after") == {1, 3}
    image, _ = create(cordon(image, 2, None), "again", 3)
    assert nodes_of(image, "again") == {1, 2, 3}


def test_a_node_with_one_open_directory_gets_what_is_new() -> None:
    image, _ = create(cordon(cluster(2), 1, "/disk-1"), "orders", 2)
    assert nodes_of(image, "orders") == {1, 2}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("/disk-1,/gone,/far", "names /gone, /far, which log.dirs does not have: it has /disk-1, /disk-2"),
        ("*,/disk-1", r"\* stands for all directories, and alone"),
        ("disk-1", "names disk-1"),
    ],
)
def test_what_is_no_log_directory_cannot_be_cordoned(value: str, problem: str) -> None:
    image = cordon(cluster(1), 1, "/disk-1")
    operation = pb.ConfigOperation(name="cordoned.log.dirs", operation=SET_CONFIG, value=value)
    change = pb.ConfigResourceChange(resource_type=BROKER_RESOURCE, resource_name="1", operations=[operation])
    altered = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[change]))
    replaced = pb.ReplacedConfig(
        resource_type=BROKER_RESOURCE,
        resource_name="1",
        configs=[pb.ConfigEntry(name="cordoned.log.dirs", value=value)],
    )
    for decision in (altered, replace_configs(image, pb.AlterConfigsRequest(resources=[replaced]))):
        (result,) = decision.response.results
        assert not decision.records
        assert result.error_code == ErrorCode.invalid_request
        assert re.search(problem, result.error_message)


def test_what_was_cordoned_before_log_dirs_changed_stands_in_nobodys_way() -> None:
    image = cordon(cluster(1), 1, "/disk-1")
    node = md.NodeRecord(node_id=1, incarnation_id="b", address="n", configs={"log.dirs": "/disk-2"})
    image = after(image, register_node(image, node))
    assert not is_cordoned(image, image.nodes[1])
    operation = pb.ConfigOperation(name="log.retention.ms", operation=SET_CONFIG, value="1000")
    change = pb.ConfigResourceChange(resource_type=BROKER_RESOURCE, resource_name="1", operations=[operation])
    decision = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[change]))
    assert decision.response.results[0].error_code == 0


@pytest.mark.parametrize(("cordoned", "chosen"), [("/disk-1", {2}), ("/disk-2", {1, 2}), ("*", {2})])
def test_what_is_offline_is_no_place_for_what_is_new(cordoned: str, chosen: set[int]) -> None:
    image = cordon(cluster(2), 1, cordoned)
    node = md.NodeRecord(
        node_id=1,
        incarnation_id="b",
        address="n",
        configs={"log.dirs": DIRECTORIES},
        offline_log_dirs=["/disk-2"],
    )
    image = after(image, register_node(image, node))
    image, _ = create(image, "orders", 1)
    assert nodes_of(image, "orders") == chosen
    image = after(
        image,
        register_node(
            image,
            md.NodeRecord(node_id=1, incarnation_id="c", address="n", configs={"log.dirs": DIRECTORIES}),
        ),
    )
    image, _ = create(image, "later", 1)
    assert nodes_of(image, "later") == ({2} if cordoned == "*" else {1, 2})


def test_too_few_are_left() -> None:
    image = cordon(cluster(2), 1, "*")
    _, result = create(image, "orders", 2)
    assert result.error_code == ErrorCode.invalid_replication_factor
    assert "only 1 broker(s) are registered or some brokers have all their log directories" in (
        result.error_message
    )
    _, result = create(cordon(image, 2, "*"), "orders", 1)
    assert "have all their log directories cordoned" in result.error_message


def test_internal_topics_do_not_grow_to_it() -> None:
    image = cluster(1)
    topic = pb.NewTopic(name=GROUP_METADATA_TOPIC, partition_count=-1, replication_factor=-1, internal=True)
    request = pb.CreateTopicsRequest(topics=[topic])
    image = after(image, create_topics(image, request, DEFAULTS, lambda: b"i" * 16))
    for node_id in (2, 3):
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address="n")
        image = after(image, register_node(image, node))
    image = cordon(image, 3, "*")
    image = after(image, grow_internal_topics(image, DEFAULTS, 10))
    assert nodes_of(image, GROUP_METADATA_TOPIC) == {1, 2}


def test_who_names_it_by_hand_is_not_held_back() -> None:
    image, _ = create(cluster(2), "orders", 1, partitions=1)
    image = cordon(image, 2, "*")
    wish = pb.PartitionReassignment(topic="orders", partition=0, replicas=[2])
    request = pb.AlterPartitionReassignmentsRequest(partitions=[wish], allow_replication_factor_change=True)
    decision = alter_partition_reassignments(image, request)
    assert decision.response.results[0].error_code == 0


@given(st.sets(st.integers(1, 5)), st.integers(1, 3))
def test_whoever_is_cordoned(cordoned: set[int], factor: int) -> None:
    image = cluster(5)
    for node_id in cordoned:
        image = cordon(image, node_id, "*")
    image, result = create(image, "orders", factor)
    if result.error_code == 0:
        assert not nodes_of(image, "orders") & cordoned
    else:
        assert factor > 5 - len(cordoned)


def test_a_directory_is_the_same_however_its_path_is_written() -> None:
    absolute = os.path.abspath("data/log")
    for directory, value in (("data/log", absolute), (absolute, "data/log"), ("data/log", "data//log")):
        assert cordoned_directories([directory, "other"], [value]) == {directory}
        node = md.NodeRecord(node_id=1, incarnation_id="a", address="n", configs={"log.dirs": directory})
        image = cordon(after(MetadataImage(), register_node(MetadataImage(), node)), 1, value)
        assert is_cordoned(image, image.nodes[1])


def test_a_node_whose_directories_are_not_known_is_cordoned_by_a_star_alone() -> None:
    assert are_all_cordoned([], ["*"])
    assert not are_all_cordoned([], ["/disk-1"])
    assert not are_all_cordoned(["/disk-1"], [])
