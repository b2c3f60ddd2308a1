"""Internal topics: as many replicas as there are nodes, three at the most, and more as nodes join."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core import internal_topics
from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.internal_topics import grow_internal_topics
from barnabas.controller.core.nodes import fence_node, hand_over, register_node
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.controller.core.topics import create_topics
from barnabas.controller.core.unregistration import unregister_node
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
)

PARTITIONS = 6
MOST = 4
DEFAULTS = ClusterDefaults(offsets_topic_num_partitions=PARTITIONS)


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def joined(image: MetadataImage, *node_ids: int, racks: Sequence[str] = ("",)) -> MetadataImage:
    for node_id, rack in zip(node_ids, itertools.cycle(racks), strict=False):
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address="n", rack=rack)
        image = after(image, register_node(image, node))
    return image


def created(
    image: MetadataImage,
    defaults: ClusterDefaults = DEFAULTS,
    name: str = GROUP_METADATA_TOPIC,
    factor: int = -1,
) -> tuple[MetadataImage, pb.CreatedTopic]:
    """As a gateway asks for it at the first mention of a group."""
    topic = pb.NewTopic(name=name, partition_count=-1, replication_factor=factor, internal=True)
    decision = create_topics(image, pb.CreateTopicsRequest(topics=[topic]), defaults, lambda: b"i" * 16)
    return after(image, decision), decision.response.topics[0]


def grown(
    image: MetadataImage, defaults: ClusterDefaults = DEFAULTS, most: int = MOST
) -> tuple[MetadataImage, tuple[pb.PartitionReassignment, ...]]:
    decision = grow_internal_topics(image, defaults, most)
    assert len(decision.records) == len(decision.response.begun) + len(decision.response.given_up)
    assert not decision.response.refused
    return after(image, decision), decision.response.begun


def copied(image: MetadataImage, without: int = NO_LEADER) -> MetadataImage:
    """All replicas that are being added come to be in sync; those of a node that is not there do not."""
    for partition in image.topics[GROUP_METADATA_TOPIC].partitions:
        if partition.adding_replicas:
            isr = [
                pb.IsrMember(node_id=each, broker_epoch=image.nodes[each].node_epoch)
                for each in partition.replicas
                if each != without
            ]
            proposal = pb.IsrProposal(
                topic_id=partition.topic_id,
                partition=partition.partition,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=isr,
            )
            epoch = image.nodes[partition.leader].node_epoch
            request = pb.AlterPartitionRequest(
                node_id=partition.leader, node_epoch=epoch, partitions=[proposal]
            )
            decision = alter_partitions(image, request)
            assert not decision.response.results[0].error_code
            image = after(image, decision)
    return image


def partitions_of(image: MetadataImage) -> Sequence[md.PartitionRecord]:
    return image.topics[GROUP_METADATA_TOPIC].partitions


@pytest.mark.parametrize(("nodes", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_the_first_replicas_are_as_many_as_there_are_nodes(nodes: int, factor: int) -> None:
    for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
        _, result = created(joined(MetadataImage(), *range(1, nodes + 1)), name=name)
        assert (result.result.error_code, result.replication_factor) == (0, factor)


def test_a_node_that_is_away_or_about_to_stop_gets_none_at_first() -> None:
    image = joined(MetadataImage(), 1, 2, 3)
    image = after(image, fence_node(image, 3))
    request = pb.HandOverRequest(node_id=2, incarnation_id=image.nodes[2].incarnation_id)
    image = after(image, hand_over(image, request, image.nodes))
    assert image.nodes[2].stopping
    image, result = created(image)
    assert result.replication_factor == 1
    assert {tuple(each.replicas) for each in partitions_of(image)} == {(1,)}


def test_nobody_is_there() -> None:
    _, result = created(MetadataImage())
    assert result.result.error_code == ErrorCode.invalid_replication_factor


def test_a_number_that_was_set_is_waited_for_and_stays() -> None:
    three = ClusterDefaults(offsets_topic_num_partitions=PARTITIONS, offsets_topic_replication_factor=3)
    image, result = created(joined(MetadataImage(), 1, 2), three)
    assert result.result.error_code == ErrorCode.invalid_replication_factor
    image, result = created(joined(image, 3), three)
    assert result.replication_factor == 3
    one = ClusterDefaults(offsets_topic_num_partitions=PARTITIONS, offsets_topic_replication_factor=1)
    image, result = created(joined(MetadataImage(), 1, 2, 3), one)
    assert result.replication_factor == 1
    assert grown(image, one)[1] == ()


def test_the_number_for_transactions_is_their_own() -> None:
    one = ClusterDefaults(transaction_state_log_num_partitions=2, transaction_state_log_replication_factor=1)
    image, result = created(joined(MetadataImage(), 1, 2, 3), one, TRANSACTION_STATE_TOPIC)
    assert result.replication_factor == 1
    assert grown(image, one)[1] == ()
    assert {each.topic for each in grown(image)[1]} == {TRANSACTION_STATE_TOPIC}
    _, result = created(joined(MetadataImage(), 1, 2, 3), one)
    assert result.replication_factor == 3


def test_what_a_request_asks_for_is_what_it_gets() -> None:
    _, result = created(joined(MetadataImage(), 1, 2, 3), factor=2)
    assert result.replication_factor == 2


def test_nodes_that_join_get_replicas_a_few_partitions_at_a_time() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    assert grown(image)[1] == ()
    image = joined(image, 2, 3)
    image, begun = grown(image)
    assert [each.partition for each in begun] == [0, 1, 2, 3]
    assert grown(image)[1] == ()  # until those are in sync
    image, begun = grown(copied(image))
    assert [each.partition for each in begun] == [4, 5]
    image = copied(image)
    for partition in partitions_of(image):
        assert partition.replicas[0] == partition.leader == 1
        assert sorted(partition.replicas) == sorted(partition.isr) == [1, 2, 3]
        assert not partition.adding_replicas
    assert grown(image)[1] == ()
    assert grown(joined(image, 4))[1] == ()


def test_two_are_better_than_one_and_the_third_comes_later() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image = copied(grown(joined(image, 2), most=PARTITIONS)[0])
    assert {tuple(each.replicas) for each in partitions_of(image)} == {(1, 2)}
    image = copied(grown(joined(image, 3), most=PARTITIONS)[0])
    assert {tuple(each.replicas) for each in partitions_of(image)} == {(1, 2, 3)}


def test_other_racks_come_first_and_nodes_are_used_alike() -> None:
    image, _ = created(joined(MetadataImage(), 1, racks=["a"]))
    image = joined(image, 2, 3, 4, racks=["a", "b", "c"])
    image, _ = grown(image, most=PARTITIONS)
    assert {tuple(each.replicas) for each in partitions_of(image)} == {(1, 3, 4)}
    image, _ = created(joined(MetadataImage(), 1))
    image, _ = grown(joined(image, 2, 3, 4), most=PARTITIONS)
    held = Counter(node for each in partitions_of(image) for node in each.replicas)
    assert held == {1: 6, 2: 4, 3: 4, 4: 4}


def test_what_is_away_gets_nothing_and_what_nobody_leads_waits() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    away = joined(image, 2)
    assert grown(after(away, fence_node(away, 2)))[1] == ()
    leaderless = joined(image, 2)
    assert grown(after(leaderless, fence_node(leaderless, 1)))[1] == ()


def test_a_replica_that_is_away_counts_and_is_kept() -> None:
    image, _ = created(joined(MetadataImage(), 1, 2))
    image = after(image, fence_node(image, 2))
    image, begun = grown(joined(image, 3), most=PARTITIONS)
    assert len(begun) == PARTITIONS
    assert {frozenset(each.replicas) for each in partitions_of(image)} == {frozenset((1, 2, 3))}


def test_those_that_wait_for_a_node_that_is_gone_hold_up_nobody() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image, begun = grown(joined(image, 2))
    image = after(image, fence_node(image, 2))
    image, later = grown(joined(image, 3))
    assert len(begun) == MOST
    assert [each.partition for each in later] == [4, 5]


def test_a_reassignment_of_somebody_else_is_left_alone_and_counts() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image = joined(image, 2, 3)
    moved = pb.PartitionReassignment(topic=GROUP_METADATA_TOPIC, partition=0, replicas=[2])
    request = pb.AlterPartitionReassignmentsRequest(partitions=[moved], allow_replication_factor_change=True)
    image = after(image, alter_partition_reassignments(image, request))
    _, begun = grown(image)
    assert [each.partition for each in begun] == [1, 2, 3]


def forgotten(image: MetadataImage, *node_ids: int) -> MetadataImage:
    """The nodes are gone, and unregistered."""
    for node_id in node_ids:
        image = after(image, fence_node(image, node_id))
        image = after(image, unregister_node(image, pb.UnregisterBrokerRequest(node_id=node_id)))
    return image


def test_a_replica_whose_node_was_unregistered_is_replaced() -> None:
    image, _ = created(joined(MetadataImage(), 1, 2))
    image = forgotten(image, 2)
    assert grown(image, most=PARTITIONS)[1] == ()  # nobody is there to take over
    image, begun = grown(joined(image, 3, 4), most=PARTITIONS)
    assert len(begun) == PARTITIONS
    for partition in partitions_of(image):
        assert sorted(partition.replicas) == [1, 2, 3, 4]
        assert (list(partition.adding_replicas), list(partition.removing_replicas)) == ([3, 4], [2])
    image = copied(image, without=2)
    assert {frozenset(each.replicas) for each in partitions_of(image)} == {frozenset((1, 3, 4))}
    assert grown(image)[1] == ()


def test_one_of_three_is_replaced_too() -> None:
    image, _ = created(joined(MetadataImage(), 1, 2, 3))
    image = copied(grown(joined(forgotten(image, 3), 4), most=PARTITIONS)[0], without=3)
    assert {frozenset(each.replicas) for each in partitions_of(image)} == {frozenset((1, 2, 4))}


def test_growth_towards_a_node_that_was_unregistered_goes_elsewhere() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image, _ = grown(joined(image, 2), most=PARTITIONS)
    image = forgotten(image, 2)
    image, begun = grown(joined(image, 3), most=PARTITIONS)
    assert len(begun) == PARTITIONS
    assert {tuple(each.replicas) for each in partitions_of(image)} == {(1, 3)}
    image = copied(image)
    assert {tuple(each.isr) for each in partitions_of(image)} == {(1, 3)}


def is_moving(partition: md.PartitionRecord) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def test_it_is_given_up_where_no_other_node_is_there() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image, _ = grown(joined(image, 2), most=PARTITIONS)
    image, begun = grown(forgotten(image, 2), most=PARTITIONS)
    assert begun == ()
    for partition in partitions_of(image):
        assert (list(partition.replicas), list(partition.isr), partition.leader) == ([1], [1], 1)
        assert not is_moving(partition)
    assert not grow_internal_topics(image, DEFAULTS, PARTITIONS).records


def moved(image: MetadataImage, *replicas: int) -> MetadataImage:
    wish = pb.PartitionReassignment(topic=GROUP_METADATA_TOPIC, partition=0, replicas=replicas)
    request = pb.AlterPartitionReassignmentsRequest(partitions=[wish], allow_replication_factor_change=True)
    decision = alter_partition_reassignments(image, request)
    assert not decision.response.results[0].error_code
    return after(image, decision)


def test_what_was_to_be_replaced_by_a_node_that_was_unregistered_stays() -> None:
    image, _ = created(joined(MetadataImage(), 1, 2))
    image = forgotten(moved(joined(image, 3), 1, 3), 3)
    image = after(image, fence_node(image, 2))  # it takes nothing, but is a replica
    assert is_moving(partitions_of(image)[0])
    decision = grow_internal_topics(image, DEFAULTS, MOST)
    assert [each.partition for each in decision.response.given_up] == [0]
    image = after(image, decision)
    assert sorted(partitions_of(image)[0].replicas) == [1, 2]
    assert not is_moving(partitions_of(image)[0])


def test_a_move_to_a_node_that_was_unregistered_is_undone_before_others_are_added() -> None:
    image, _ = created(joined(MetadataImage(), 1))
    image = forgotten(moved(joined(image, 2), 2), 2)
    image, _ = grown(joined(image, 3), most=PARTITIONS)
    assert (list(partitions_of(image)[0].replicas), is_moving(partitions_of(image)[0])) == ([1], False)
    image = copied(grown(image, most=PARTITIONS)[0])
    image = copied(grown(image, most=PARTITIONS)[0])
    assert {tuple(each.isr) for each in partitions_of(image)} == {(1, 3)}


def test_fewer_replicas_are_waited_for_no_longer_than_those_that_were_to_stay_are_known() -> None:
    image, _ = created(joined(MetadataImage(), 1, 2, 3))
    image = forgotten(moved(after(image, fence_node(image, 2)), 1, 2), 2)
    image = after(image, fence_node(image, 3))
    assert list(partitions_of(image)[0].removing_replicas) == [3]
    (partition, *_) = partitions_of(grown(image)[0])
    assert (sorted(partition.replicas), is_moving(partition)) == ([1, 2, 3], False)
    (partition, *_) = partitions_of(grown(joined(image, 4))[0])
    assert list(partition.replicas) == [1, 4, 2, 3]
    assert (list(partition.adding_replicas), list(partition.removing_replicas)) == ([4], [2, 3])


def test_a_reassignment_is_not_given_up_where_the_number_of_replicas_was_set() -> None:
    one = ClusterDefaults(offsets_topic_num_partitions=PARTITIONS, offsets_topic_replication_factor=1)
    image, _ = created(joined(MetadataImage(), 1), one)
    image = forgotten(moved(joined(image, 2), 2), 2)
    assert not grow_internal_topics(image, one, MOST).records


def test_what_is_refused_is_told_as_that_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_the_first(
        image: MetadataImage, request: pb.AlterPartitionReassignmentsRequest
    ) -> Decision[pb.AlterPartitionReassignmentsResponse]:
        if request.partitions[0].partition >= 2:
            return alter_partition_reassignments(image, request)
        result = pb.ResourceResult(error_code=ErrorCode.invalid_replica_assignment, error_message="no")
        return Decision((), pb.AlterPartitionReassignmentsResponse(results=[result]))

    monkeypatch.setattr(internal_topics, "alter_partition_reassignments", refuse_the_first)
    image, _ = created(joined(MetadataImage(), 1))
    decision = grow_internal_topics(joined(image, 2, 3), DEFAULTS, MOST)
    assert [each.partition for each in decision.response.begun] == [2, 3, 4, 5]
    assert len(decision.records) == MOST
    refused = [(wish.topic, wish.partition, reason) for wish, reason in decision.response.refused]
    assert refused == [(GROUP_METADATA_TOPIC, 0, "no"), (GROUP_METADATA_TOPIC, 1, "no")]


def test_topics_of_users_stay_as_they_are() -> None:
    image = joined(MetadataImage(), 1)
    topic = pb.NewTopic(name="orders", partition_count=1, replication_factor=-1)
    request = pb.CreateTopicsRequest(topics=[topic])
    image = after(image, create_topics(image, request, DEFAULTS, lambda: b"o" * 16))
    assert grown(joined(image, 2, 3))[1] == ()


@given(
    st.lists(
        st.tuples(st.sampled_from(("join", "away", "copied")), st.integers(1, 6), st.sampled_from("abc")),
        max_size=25,
    ),
    st.integers(1, PARTITIONS),
)
def test_whatever_comes_and_goes_replicas_are_added_and_never_taken(
    events: list[tuple[str, int, str]], most: int
) -> None:
    image, _ = created(joined(MetadataImage(), 1, racks=["a"]))
    for event, node_id, rack in events:
        if event == "join":
            image = joined(image, node_id, racks=[rack])
        elif event == "away" and node_id in image.nodes and node_id != 1:
            image = after(image, fence_node(image, node_id))
        elif event == "copied" and all(not node.fenced for node in image.nodes.values()):
            image = copied(image)
        before = [list(each.replicas) for each in partitions_of(image)]
        image, _ = grown(image, most=most)
        for known, partition in zip(before, partitions_of(image), strict=True):
            replicas = list(partition.replicas)
            assert replicas[: len(known)] == known
            assert len(set(replicas)) == len(replicas) <= 3
    live = {node.node_id for node in image.live_nodes()}
    for _ in range(PARTITIONS):
        for node_id in sorted(image.nodes.keys() - live):
            image = joined(image, node_id)
        image = copied(image)
        image, _ = grown(image, most=most)
    image = copied(image)
    assert {len(each.replicas) for each in partitions_of(image)} == {min(3, len(image.nodes))}
