"""Leaders elected anew by request and from time to time: which partitions change, and what the others hear."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    elect_leaders,
    elect_preferred_leaders,
    elect_unclean_leaders,
)
from barnabas.controller.core.nodes import fence_node, hand_over, register_node
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import NO_LEADER, MetadataImage, config_key, topic_key

NONE = (0, "")
NOT_NEEDED = (ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
NO_PREFERRED = (ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")
NOBODY = (ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available.")

Row = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(leader, replicas, in-sync replicas)"""


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def cluster(**topics: list[Row]) -> MetadataImage:
    """Nodes 1, 2 and 3, and topics whose partitions are in leader epoch 5."""
    image = MetadataImage()
    for node_id in (1, 2, 3):
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address="n")
        image = after(image, register_node(image, node))
    records = []
    for name, rows in topics.items():
        topic_id = name.encode().ljust(16)
        for index, (leader, replicas, isr) in enumerate(rows):
            partition = md.PartitionRecord(
                topic_id=topic_id,
                partition=index,
                leader=leader,
                leader_epoch=5,
                replicas=replicas,
                isr=isr,
            )
            records.append(partition_entry(partition))
        topic = md.TopicRecord(name=name, topic_id=topic_id, partition_count=len(rows))
        records.append(md.MetadataRecord(key=topic_key(name), topic=topic))
    return image.apply(records, image.revision + 1)


def asked(
    image: MetadataImage, election_type: int, **topics: list[int]
) -> tuple[MetadataImage, dict[str, list[tuple[int, tuple[int, str]]]]]:
    """What is asked for, or all; and (partition, (code, message)) by topic."""
    request = pb.ElectLeadersRequest(
        election_type=election_type,
        all_partitions=not topics,
        topics=[pb.ElectedTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    decision = elect_leaders(image, request)
    answer = {
        topic.name: [
            (row.partition, (row.result.error_code, row.result.error_message)) for row in topic.partitions
        ]
        for topic in decision.response.topics
    }
    return after(image, decision) if decision.records else image, answer


def leaders(image: MetadataImage, name: str = "t") -> list[tuple[int, int]]:
    """(leader, leader epoch) of each partition."""
    return [(p.leader, p.leader_epoch) for p in image.topics[name].partitions]


def test_the_preferred_leader_leads_again_once_it_is_in_sync() -> None:
    image, answer = asked(cluster(t=[(2, (1, 2), (1, 2))]), PREFERRED, t=[0])
    assert answer == {"t": [(0, NONE)]}
    assert leaders(image) == [(1, 6)]
    assert list(image.topics["t"].partitions[0].isr) == [1, 2]
    assert image.topics["t"].partitions[0].partition_epoch == 1


@pytest.mark.parametrize(
    ("row", "result"),
    [
        ((1, (1, 2), (1, 2)), NOT_NEEDED),
        ((2, (1, 2), (2,)), NO_PREFERRED),
        ((NO_LEADER, (1, 2), (9,)), NO_PREFERRED),
    ],
)
def test_who_is_not_elected_hears_why(row: Row, result: tuple[int, str]) -> None:
    before = cluster(t=[row])
    image, answer = asked(before, PREFERRED, t=[0])
    assert (image, answer) == (before, {"t": [(0, result)]})


def test_a_preferred_leader_that_is_away_or_stopping_is_not_elected() -> None:
    image = cluster(t=[(2, (1, 2), (1, 2))])
    stopping = after(image, hand_over(image, pb.HandOverRequest(node_id=1, incarnation_id="a"), (1, 2, 3)))
    assert asked(stopping, PREFERRED, t=[0])[1] == {"t": [(0, NO_PREFERRED)]}
    fenced = after(image, fence_node(image, 1))
    assert asked(fenced, PREFERRED, t=[0])[1] == {"t": [(0, NO_PREFERRED)]}


def test_who_alone_can_lead_keeps_on_when_it_is_stopping() -> None:
    image = cluster(t=[(2, (1, 2), (2,))])
    image = after(image, hand_over(image, pb.HandOverRequest(node_id=2, incarnation_id="a"), (1, 2, 3)))
    image, answer = asked(image, PREFERRED, t=[0])
    assert (leaders(image), answer) == ([(2, 5)], {"t": [(0, NO_PREFERRED)]})


def test_a_partition_that_nobody_leads_gets_whoever_may() -> None:
    image, answer = asked(cluster(t=[(NO_LEADER, (1, 2), (2,))]), PREFERRED, t=[0])
    assert (leaders(image), answer) == ([(2, 6)], {"t": [(0, NONE)]})


def test_an_unclean_election_takes_whoever_is_there() -> None:
    image = cluster(t=[(1, (1, 2, 3), (1,))])
    image = after(image, fence_node(image, 1))
    image, answer = asked(image, UNCLEAN, t=[0])
    assert answer == {"t": [(0, NONE)]}, "whatever the topic's settings say"
    assert leaders(image) == [(2, 7)]
    assert list(image.topics["t"].partitions[0].isr) == [2]


def test_an_unclean_election_prefers_who_is_in_sync() -> None:
    image, answer = asked(cluster(t=[(NO_LEADER, (1, 2, 3), (3,))]), UNCLEAN, t=[0])
    assert (leaders(image), answer) == ([(3, 6)], {"t": [(0, NONE)]})


def test_an_unclean_election_is_for_partitions_that_nobody_leads() -> None:
    before = cluster(t=[(2, (1, 2), (1, 2)), (NO_LEADER, (9,), (9,))])
    image, answer = asked(before, UNCLEAN, t=[0, 1])
    assert (image, answer) == (before, {"t": [(0, NOT_NEEDED), (1, NOBODY)]})


def test_what_does_not_exist() -> None:
    _, answer = asked(cluster(t=[(1, (1,), (1,))]), PREFERRED, t=[0, 1, -1], u=[0])
    unknown = ErrorCode.unknown_topic_or_partition
    assert answer == {
        "t": [
            (0, NOT_NEEDED),
            (1, (unknown, "No such partition as t-1")),
            (-1, (unknown, "No such partition as t--1")),
        ],
        "u": [(0, (unknown, "No such topic as u"))],
    }


def test_a_partition_that_is_named_twice_is_elected_once() -> None:
    image, answer = asked(cluster(t=[(2, (1, 2), (1, 2))]), PREFERRED, t=[0, 0])
    assert (leaders(image), answer) == ([(1, 6)], {"t": [(0, NONE), (0, NOT_NEEDED)]})


def test_of_all_partitions_those_are_told_of_that_needed_it() -> None:
    good, moved, stuck = (1, (1, 2), (1, 2)), (2, (1, 2), (1, 2)), (2, (1, 2), (2,))
    image, answer = asked(cluster(b=[good], a=[good, moved, stuck]), PREFERRED)
    assert answer == {"a": [(1, NONE), (2, NO_PREFERRED)], "b": []}
    assert leaders(image, "a") == [(1, 5), (1, 6), (2, 5)]


@pytest.mark.parametrize("election_type", [-1, 2])
def test_there_are_two_types(election_type: int) -> None:
    with pytest.raises(KafkaError) as refused:
        asked(cluster(t=[(1, (1,), (1,))]), election_type, t=[0])
    assert refused.value.code == ErrorCode.invalid_request


def test_leadership_goes_back_by_itself_so_much_at_a_time() -> None:
    moved, stuck = (2, (1, 2), (1, 2)), (2, (1, 2), (2,))
    image = cluster(t=[stuck, moved, moved, moved])
    decision = elect_preferred_leaders(image, 2)
    assert (len(decision.records), decision.response) == (2, True)
    image = after(image, decision)
    assert [leader for leader, _ in leaders(image)] == [2, 1, 1, 2]
    decision = elect_preferred_leaders(image, 2)
    assert (len(decision.records), decision.response) == (1, False)
    image = after(image, decision)
    assert elect_preferred_leaders(image, 2) == Decision((), False), (
        "what cannot be moved is not tried for ever"
    )


@pytest.mark.parametrize(
    ("settings", "leader"), [({}, NO_LEADER), ({"unclean.leader.election.enable": "true"}, 2)]
)
def test_unclean_leaders_come_by_themselves_where_the_topic_allows_it(
    settings: Mapping[str, str], leader: int
) -> None:
    image = cluster(t=[(NO_LEADER, (4, 2), (4,)), (2, (1, 2), (2,))])
    record = md.MetadataRecord(key=config_key(TOPIC_RESOURCE, "t"), config=md.ConfigRecord(values=settings))
    image = image.apply([record], image.revision + 1)
    image = after(image, elect_unclean_leaders(image, 10))
    assert [found for found, _ in leaders(image)] == [leader, 2]
