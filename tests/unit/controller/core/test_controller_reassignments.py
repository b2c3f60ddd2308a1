"""Partitions move to other replicas: begun, ended by the last that comes to be in sync, replaced, given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.nodes import fence_node, hand_over, register_node
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, config_key, topic_key

TOPIC = b"t" * 16
NODES = (1, 2, 3, 4, 5)


def cluster(
    replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] | None = None, **settings: str
) -> MetadataImage:
    """Nodes 1 to 5, and one partition that the first of `replicas` leads."""
    image = MetadataImage()
    for node_id in NODES:
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address="n")
        image = image.apply(register_node(image, node).records, image.revision + 1)
    partition = md.PartitionRecord(
        topic_id=TOPIC, leader=replicas[0], replicas=replicas, isr=replicas if isr is None else isr
    )
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    config = md.MetadataRecord(key=config_key(TOPIC_RESOURCE, "t"), config=md.ConfigRecord(values=dotted))
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic), config]
    return image.apply(records, image.revision + 1)


def the_partition(image: MetadataImage) -> md.PartitionRecord:
    found = image.partition(TOPIC, 0)
    assert found is not None
    return found


def reassign(image: MetadataImage, replicas: Sequence[int] | None) -> tuple[MetadataImage, pb.ResourceResult]:
    wanted = pb.PartitionReassignment(topic="t", replicas=replicas or (), cancel=replicas is None)
    request = pb.AlterPartitionReassignmentsRequest(partitions=[wanted], allow_replication_factor_change=True)
    decision = alter_partition_reassignments(image, request)
    return image.apply(decision.records, image.revision + 1), decision.response.results[0]


def begun(image: MetadataImage, replicas: Sequence[int]) -> MetadataImage:
    image, result = reassign(image, replicas)
    assert not result.error_code
    return image


def in_sync(image: MetadataImage, *isr: int) -> tuple[MetadataImage, pb.IsrResult]:
    """The leader says that these are in sync, and the controller hears of it."""
    known = the_partition(image)
    members = [pb.IsrMember(node_id=each, broker_epoch=image.nodes[each].node_epoch) for each in isr]
    proposal = pb.IsrProposal(
        topic_id=TOPIC, leader_epoch=known.leader_epoch, partition_epoch=known.partition_epoch, isr=members
    )
    epoch = image.nodes[known.leader].node_epoch
    request = pb.AlterPartitionRequest(node_id=known.leader, node_epoch=epoch, partitions=[proposal])
    decision = alter_partitions(image, request)
    return image.apply(decision.records, image.revision + 1), decision.response.results[0]


def state(image: MetadataImage) -> tuple[list[int], list[int], list[int], list[int]]:
    """(replicas, adding, removing, ISR)"""
    found = the_partition(image)
    return (
        list(found.replicas),
        list(found.adding_replicas),
        list(found.removing_replicas),
        sorted(found.isr),
    )


def epochs(image: MetadataImage) -> tuple[int, int, int]:
    found = the_partition(image)
    return found.leader, found.leader_epoch, found.partition_epoch


def test_a_move_adds_first_and_takes_away_once_the_new_ones_are_in_sync() -> None:
    image = begun(cluster(), [4, 5, 1])
    assert state(image) == ([4, 5, 1, 2, 3], [4, 5], [2, 3], [1, 2, 3])
    assert epochs(image) == (1, 0, 1)
    image, result = in_sync(image, 1, 2, 3, 4)
    assert (result.error_code, state(image)[1:3]) == (0, ([4, 5], [2, 3]))
    image, result = in_sync(image, 1, 2, 3, 4, 5)
    assert result.error_code == 0
    assert state(image) == ([4, 5, 1], [], [], [1, 4, 5])
    assert epochs(image) == (1, 1, 3)


def test_a_leader_that_is_moved_away_hears_of_it() -> None:
    image = begun(cluster((1, 2)), [3, 4])
    image, _ = in_sync(image, 1, 2, 3)
    image, result = in_sync(image, 1, 2, 3, 4)
    assert result.error_code == ErrorCode.new_leader_elected
    assert (state(image), epochs(image)[0]) == (([3, 4], [], [], [3, 4]), 3)


def test_what_adds_nothing_is_done_at_once() -> None:
    image = begun(cluster(), [2, 1])
    assert (state(image), epochs(image)) == (([2, 1], [], [], [1, 2]), (1, 1, 1))
    image = begun(image, [1, 2])
    assert (state(image), epochs(image)) == (([1, 2], [], [], [1, 2]), (1, 1, 2))
    image = begun(image, [1, 2])
    assert epochs(image) == (1, 1, 2)


def test_fewer_replicas_wait_for_all_that_stay() -> None:
    image = begun(cluster((1, 2, 3, 4), isr=(1, 2)), [1, 3, 5])
    image, _ = in_sync(image, 1, 2, 5)
    assert state(image)[1:3] == ([5], [2, 4])
    image, _ = in_sync(image, 1, 2, 3, 5)
    assert state(image) == ([1, 3, 5], [], [], [1, 3, 5])


def test_a_second_move_replaces_the_first() -> None:
    image = begun(cluster((1, 2)), [3, 4])
    image, _ = in_sync(image, 1, 2, 3)
    image = begun(image, [1, 4])
    assert state(image) == ([1, 4, 2, 3], [4], [2, 3], [1, 2, 3])
    image, _ = in_sync(image, 1, 2, 3, 4)
    assert state(image) == ([1, 4], [], [], [1, 4])


def test_a_move_that_is_given_up_leaves_what_there_was() -> None:
    image = begun(cluster((1, 2)), [3, 4])
    image, _ = in_sync(image, 1, 2, 3)
    image, result = reassign(image, None)
    assert result.error_code == 0
    assert (state(image), epochs(image)) == (([1, 2], [], [], [1, 2]), (1, 1, 3))
    _, result = reassign(image, None)
    assert result.error_code == ErrorCode.no_reassignment_in_progress


@pytest.mark.parametrize(("min_in_sync", "eligible"), [("1", []), ("2", [1])])
def test_a_move_cannot_be_given_up_where_only_new_replicas_are_in_sync(
    min_in_sync: str, eligible: list[int]
) -> None:
    """Nor where one that would stay is eligible: it may come back as a process that lost records."""
    image = begun(cluster((1, 2), min_insync_replicas=min_in_sync), [3, 4])
    image, _ = in_sync(image, 1, 2, 3)
    for node_id in (2, 1):
        image = image.apply(fence_node(image, node_id).records, image.revision + 1)
    before = the_partition(image)
    assert (before.leader, list(before.isr), list(before.eligible_leader_replicas)) == (3, [3], eligible)
    image, result = reassign(image, None)
    assert result.error_code == ErrorCode.invalid_replica_assignment
    assert "unclean leader election" in result.error_message
    assert the_partition(image) == before


def stopping(image: MetadataImage, node_id: int) -> MetadataImage:
    """The node is about to stop, and nobody else is heard of just then."""
    request = pb.HandOverRequest(node_id=node_id, incarnation_id="a")
    return image.apply(hand_over(image, request, ()).records, image.revision + 1)


def test_what_is_asked_for_twice_is_what_it_was_and_can_be_given_up() -> None:
    """The answer to the first request was lost; one of the new ones is in sync by then."""
    image, _ = in_sync(begun(cluster((1, 2)), [3, 4]), 1, 2, 3)
    again = begun(image, [3, 4])
    assert the_partition(again) == the_partition(image)
    image, result = reassign(again, None)
    assert (result.error_code, state(image)) == (0, ([1, 2], [], [], [1, 2]))


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_move_ends_with_the_election_of_the_one_that_it_waited_for(is_unclean: bool) -> None:
    """Alone as it is, the new leader proposes nothing that could end it."""
    image = cluster((1,), unclean_leader_election_enable=str(is_unclean).lower())
    image = begun(image, [2])
    if not is_unclean:
        image, _ = in_sync(cluster((1, 3), min_insync_replicas="2"), 1, 3)
        image = begun(image.apply(fence_node(image, 3).records, image.revision + 1), [3])
    image = image.apply(fence_node(image, 1).records, image.revision + 1)
    if not is_unclean:
        node = md.NodeRecord(node_id=3, incarnation_id="a", address="n")
        image = image.apply(register_node(image, node).records, image.revision + 1)
    chosen = 2 if is_unclean else 3
    assert (epochs(image)[0], state(image)) == (chosen, ([chosen], [], [], [chosen]))


def test_nothing_is_left_to_one_that_is_stopping_alone() -> None:
    """It is in sync, and leads nothing any more: the partition would have no leader until it is back."""
    image = stopping(cluster((1, 2)), 2)
    assert epochs(image)[0] == 1
    image = begun(image, [2])
    assert (epochs(image)[0], state(image)) == (1, ([2, 1], [], [1], [1, 2]))
    _, result = reassign(image, None)
    assert result.error_code == 0


def test_one_that_is_stopping_and_leads_may_be_left_alone() -> None:
    """Nobody else can lead: it goes on to, whether the others are replicas or not."""
    image = cluster((1, 2))
    image = stopping(image.apply(fence_node(image, 1).records, image.revision + 1), 2)
    assert (epochs(image)[0], state(image)) == (2, ([1, 2], [], [], [2]))
    image = begun(image, [2])
    assert (epochs(image)[0], state(image)) == (2, ([2], [], [], [2]))


def test_a_move_cannot_be_given_up_where_one_that_is_stopping_would_be_left_alone() -> None:
    image, _ = in_sync(begun(cluster((1, 2)), [2, 3, 4]), 1, 2, 3)
    image = stopping(image, 2)
    image = image.apply(fence_node(image, 1).records, image.revision + 1)
    assert (epochs(image)[0], state(image)) == (3, ([2, 3, 4, 1], [3, 4], [1], [2, 3]))
    after, result = reassign(image, None)
    assert result.error_code == ErrorCode.invalid_replica_assignment
    assert the_partition(after) == the_partition(image)


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        ({"topic": "other"}, ErrorCode.unknown_topic_or_partition, "Unable to find a topic named other."),
        ({"partition": 1}, ErrorCode.unknown_topic_or_partition, "Unable to find partition t:1."),
        ({"replicas": ()}, ErrorCode.invalid_replica_assignment, "an empty replica list."),
        ({"replicas": (1, 9)}, ErrorCode.invalid_replica_assignment, "broker 9, but no such broker is"),
        ({"replicas": (1, 1)}, ErrorCode.invalid_replica_assignment, "the broker 1 more than once."),
        ({"replicas": (1, 2)}, ErrorCode.invalid_replication_factor, "changed from 3 to 2"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    wanted: dict[str, Any], code: ErrorCode, text: str
) -> None:
    image = cluster()
    request = pb.PartitionReassignment(**{"topic": "t", "replicas": (1, 2, 3)} | wanted)
    decision = alter_partition_reassignments(
        image, pb.AlterPartitionReassignmentsRequest(partitions=[request])
    )
    after, result = image.apply(decision.records, image.revision + 1), decision.response.results[0]
    assert result.error_code == code
    assert text in result.error_message
    assert the_partition(after) == the_partition(image)


targets = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True)


def test_what_was_being_added_and_is_not_wanted_any_more_goes_at_once() -> None:
    image, _ = in_sync(begun(cluster((1,)), [1, 2, 3]), 1, 2)
    assert state(image) == ([1, 2, 3], [2, 3], [], [1, 2])
    # The second has everything by now, and stays until the end.
    image = begun(image, [1, 4])
    assert state(image) == ([1, 4, 2], [4], [2], [1, 2])
    image, _ = in_sync(image, 1, 2, 4)
    assert state(image) == ([1, 4], [], [], [1, 4])


@given(st.lists(targets, min_size=1, max_size=4), st.data())
def test_after_any_moves_the_last_one_holds(moves: list[list[int]], data: st.DataObject) -> None:
    image = cluster((1, 2, 3))
    for target in moves:
        image = begun(image, target)
        found = the_partition(image)
        assert set(found.adding_replicas).isdisjoint(found.removing_replicas)
        assert set(found.isr) <= set(found.replicas)
        some = data.draw(st.lists(st.sampled_from(list(found.replicas)), unique=True))
        image, _ = in_sync(image, *{*found.isr, *some})
    for _ in range(2):
        found = the_partition(image)
        image, result = in_sync(image, *found.replicas)
        assert result.error_code in (0, ErrorCode.new_leader_elected)
    found = the_partition(image)
    assert list(found.replicas) == moves[-1]
    assert sorted(found.isr) == sorted(moves[-1])
    assert not found.adding_replicas
    assert not found.removing_replicas
    assert found.leader in found.isr
