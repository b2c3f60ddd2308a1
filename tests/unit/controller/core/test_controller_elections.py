"""Nodes come, hand over, go and restart: who leads replicated partitions then, who is in sync, under which epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.gateways import register_gateway
from barnabas.controller.core.nodes import fence_node, hand_over, on_process_ended, register_node
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import NO_LEADER, MetadataImage, config_key, topic_key

TOPIC = b"t" * 16
ALL = {1, 2, 3}
UNCLEAN = {"unclean.leader.election.enable": "true"}

State = tuple[int, int, int, list[int]]
"""(leader, leader epoch, partition epoch, in-sync replicas)"""


def node(node_id: int, incarnation: str = "a") -> md.NodeRecord:
    return md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address=f"n{node_id}")


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def cluster(replicas: Sequence[int], isr: Sequence[int], leader: int) -> MetadataImage:
    """Three live nodes and one partition in leader epoch 5."""
    image = MetadataImage()
    for node_id in (1, 2, 3):
        image = after(image, register_node(image, node(node_id)))
    partition = md.PartitionRecord(topic_id=TOPIC, leader=leader, replicas=replicas, isr=isr, leader_epoch=5)
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def configured(
    image: MetadataImage, resource_type: int, name: str, values: Mapping[str, str]
) -> MetadataImage:
    record = md.MetadataRecord(key=config_key(resource_type, name), config=md.ConfigRecord(values=values))
    return image.apply([record], image.revision + 1)


def state(image: MetadataImage) -> State:
    p = image.topics["t"].partitions[0]
    return p.leader, p.leader_epoch, p.partition_epoch, list(p.isr)


def handed_over(
    image: MetadataImage, node_id: int, present: set[int] | None = None, came_back: Sequence[int] = ()
) -> tuple[MetadataImage, int]:
    incarnation = image.nodes[node_id].incarnation_id
    request = pb.HandOverRequest(node_id=node_id, incarnation_id=incarnation)
    decision = hand_over(image, request, ALL if present is None else present, came_back=came_back)
    return after(image, decision), decision.response.led_partitions


def test_a_leader_hands_over_to_the_next_in_sync_replica() -> None:
    image, led = handed_over(cluster((1, 2, 3), (1, 3), 1), 1)
    assert (state(image), led) == ((3, 6, 1, [3]), 0)
    assert image.nodes[1].stopping
    assert not image.nodes[1].fenced


@pytest.mark.parametrize(
    ("isr", "came_back", "leader"),
    [
        pytest.param((1, 2, 3), (2,), 3, id="clients have a connection to the other one"),
        pytest.param((1, 2, 3), (3, 2), 3, id="the one that came back first"),
        pytest.param((1, 2, 3), (2, 3), 2, id="the one that came back first, in whatever order"),
        pytest.param((1, 2), (2,), 2, id="nobody else has everything"),
    ],
)
def test_who_just_came_back_leads_what_nobody_else_can(
    isr: Sequence[int], came_back: Sequence[int], leader: int
) -> None:
    before = cluster((1, 2, 3), isr, 1)
    image, led = handed_over(before, 1, came_back=came_back)
    rest = [node for node in isr if node != 1]
    assert (state(image), led) == ((leader, 6, 1, rest), 0)
    image = after(before, on_process_ended(before, 1, {2, 3}, came_back=came_back))
    assert state(image) == (leader, 6, 1, rest)


def test_a_leader_that_just_came_back_leads_on() -> None:
    image, _ = handed_over(cluster((1, 2, 3), (1, 2, 3), 2), 3, came_back=(2,))
    assert state(image) == (2, 5, 1, [1, 2])


def test_a_follower_that_hands_over_leaves_the_isr() -> None:
    image, led = handed_over(cluster((1, 2, 3), (1, 2, 3), 1), 2)
    assert (state(image), led) == ((1, 5, 1, [1, 3]), 0)


def test_to_hand_over_again_changes_nothing() -> None:
    image, _ = handed_over(cluster((1, 2), (1, 2), 1), 1)
    again = hand_over(image, pb.HandOverRequest(node_id=1, incarnation_id="a"), ALL)
    assert again == Decision((), pb.HandOverResponse(led_partitions=0))


def test_who_alone_is_in_sync_leads_on_and_may_go() -> None:
    before = cluster((1, 2), (1,), 1)
    image, led = handed_over(before, 1)
    assert (state(image), led) == (state(before), 0)
    image = configured(before, TOPIC_RESOURCE, "t", UNCLEAN)
    assert state(handed_over(image, 1)[0]) == state(before), "a restart is no reason to lose records"


def test_a_replica_that_is_in_sync_by_now_takes_over_when_asked_again() -> None:
    image, _ = handed_over(cluster((1, 2), (1,), 1), 1)
    partition = md.PartitionRecord()
    partition.CopyFrom(image.topics["t"].partitions[0])
    partition.isr[:] = [1, 2]
    image = image.apply([partition_entry(partition)], image.revision + 1)
    image, led = handed_over(image, 1)
    assert (state(image)[0], state(image)[3], led) == (2, [2], 0)


def test_nobody_hands_over_to_one_that_is_stopping_too() -> None:
    image, _ = handed_over(cluster((1, 2), (1, 2), 1), 2)
    image, led = handed_over(image, 1)
    assert (state(image), led) == ((1, 5, 1, [1]), 0)
    image = after(image, fence_node(image, 1))
    assert state(image) == (NO_LEADER, 6, 2, []), "its records are nowhere else"
    assert list(image.topics["t"].partitions[0].eligible_leader_replicas) == [1]


def test_who_is_silent_is_handed_nothing() -> None:
    image, led = handed_over(cluster((1, 2, 3), (1, 2, 3), 1), 1, present={1, 3})
    assert (state(image), led) == ((3, 6, 1, [2, 3]), 0)


def test_what_only_silent_ones_could_lead_stays_and_they_may_be_heard_of_in_a_moment() -> None:
    before = cluster((1, 2, 3), (1, 2), 1)
    image, led = handed_over(before, 1, present={1, 3})
    assert (state(image), led) == (state(before), 1)
    image, led = handed_over(image, 1)
    assert (state(image), led) == ((2, 6, 1, [2]), 0), "it is there by now"


def test_an_isr_is_not_left_to_silent_ones() -> None:
    before = cluster((1, 2), (1, 2), 2)
    assert state(handed_over(before, 1, present={1})[0]) == state(before)


@pytest.mark.parametrize("request_", [(1, "b"), (9, "a")])
def test_only_the_nodes_own_process_hands_over(request_: tuple[int, str]) -> None:
    node_id, incarnation = request_
    image = cluster((1, 2), (1, 2), 1)
    with pytest.raises(KafkaError) as refused:
        hand_over(image, pb.HandOverRequest(node_id=node_id, incarnation_id=incarnation), ALL)
    assert refused.value.code == ErrorCode.stale_broker_epoch


def test_a_fenced_process_has_nothing_to_hand_over() -> None:
    image = cluster((1, 2), (1, 2), 1)
    image = after(image, fence_node(image, 1))
    with pytest.raises(KafkaError):
        hand_over(image, pb.HandOverRequest(node_id=1, incarnation_id="a"), ALL)


def test_a_node_is_stopping_until_its_next_process() -> None:
    image, _ = handed_over(cluster((1, 2), (1, 2), 1), 1)
    assert image.eligible_epochs.keys() == {2, 3}
    image = after(image, register_node(image, node(1)))
    assert image.nodes[1].stopping, "its stream broke, and it is still about to stop"
    image = after(image, fence_node(image, 1))
    image = after(image, register_node(image, node(1)))
    assert image.nodes[1].stopping
    image = after(image, register_node(image, node(1, "b")))
    assert not image.nodes[1].stopping
    assert image.eligible_epochs.keys() == {1, 2, 3}


def test_a_stopping_node_is_nobodys_new_leader() -> None:
    image, _ = handed_over(cluster((1, 2), (1,), 1), 1)
    image = after(image, fence_node(image, 1))
    image = after(image, register_node(image, node(1)))
    assert state(image)[0] == NO_LEADER
    image = after(image, register_node(image, node(1, "b")))
    assert state(image)[0] == 1


def test_a_restart_within_the_session_leaves_what_only_the_node_has_as_it_was() -> None:
    image, _ = handed_over(cluster((1,), (1,), 1), 1)
    assert state(image) == (1, 5, 0, [1])
    image = after(image, register_node(image, node(1, "b")))
    assert state(image) == (1, 6, 1, [1])


def test_a_new_process_is_not_in_sync_where_others_are() -> None:
    image = cluster((1, 2, 3), (1, 2, 3), 1)
    image = after(image, register_node(image, node(3, "b")))
    assert state(image) == (1, 5, 1, [1, 2])
    image = after(image, register_node(image, node(1, "b")))
    assert state(image) == (2, 6, 2, [2])
    image = after(image, register_node(image, node(2, "b")))
    assert state(image) == (2, 7, 3, [2])


def test_the_leader_stays_where_it_is_a_candidate() -> None:
    image = cluster((1, 2, 3), (1, 2, 3), 3)
    image = after(image, fence_node(image, 1))
    assert state(image) == (3, 5, 1, [2, 3])


def test_no_replica_out_of_sync_leads_by_default() -> None:
    image = cluster((1, 2), (1,), 1)
    image = after(image, fence_node(image, 1))
    assert state(image) == (NO_LEADER, 6, 1, [])
    image = after(image, register_node(image, node(2, "b")))
    assert state(image) == (NO_LEADER, 6, 1, [])


@pytest.mark.parametrize(("resource_type", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_a_replica_out_of_sync_leads_where_the_settings_allow_it(resource_type: int, name: str) -> None:
    image = configured(cluster((1, 2, 3), (1,), 1), resource_type, name, UNCLEAN)
    image = after(image, fence_node(image, 1))
    assert state(image) == (2, 6, 1, [2])
    image = after(image, register_node(image, node(1)))
    assert state(image) == (2, 6, 1, [2]), "who comes back is a follower"


def test_what_the_broker_files_say_of_unclean_elections_has_effect() -> None:
    image = cluster((1, 2), (1,), 1)
    allowing = node(3)
    allowing.configs.update(UNCLEAN)
    image = after(image, register_node(image, allowing))
    assert state(after(image, fence_node(image, 1)))[0] == 2
    image = configured(image, TOPIC_RESOURCE, "t", {"unclean.leader.election.enable": "false"})
    assert state(after(image, fence_node(image, 1)))[0] == NO_LEADER, "the topic's own counts first"


def test_the_setting_alone_elects_nobody_but_the_next_node_that_comes_does() -> None:
    image = cluster((1, 2), (1,), 1)
    image = after(image, fence_node(image, 1))
    image = configured(image, TOPIC_RESOURCE, "t", UNCLEAN)
    assert state(image)[0] == NO_LEADER
    image = after(image, fence_node(image, 3))
    assert state(image)[0] == NO_LEADER
    image = after(image, register_node(image, node(3)))
    assert state(image) == (2, 7, 2, [2])


def test_an_unclean_election_needs_somebody_who_is_there() -> None:
    image = configured(cluster((1, 2), (1,), 1), TOPIC_RESOURCE, "t", UNCLEAN)
    image = after(image, fence_node(image, 2))
    image = after(image, fence_node(image, 1))
    assert state(image) == (NO_LEADER, 6, 1, [])


def test_what_others_can_lead_does_not_wait_for_a_process_that_has_ended() -> None:
    image = cluster((1, 2, 3), (1, 2, 3), 1)
    image = after(image, on_process_ended(image, 1, {2, 3}))
    assert state(image) == (2, 6, 1, [2, 3])
    assert image.nodes[1].fenced, "nothing is left that only it has"
    assert on_process_ended(image, 1, {2, 3}).records == ()


def test_what_only_it_has_waits_for_the_next_process() -> None:
    image = cluster((1, 2), (1,), 1)
    assert on_process_ended(image, 1, {2, 3}).records == ()
    assert not image.nodes[1].fenced


def test_the_gateways_of_a_process_have_ended_with_it() -> None:
    image = after(
        cluster((1, 2), (1,), 1), register_gateway(MetadataImage(), md.GatewayRecord(gateway_id="g1"))
    )
    image = after(image, on_process_ended(image, 1, {2, 3}, gateways=["g1"]))
    assert (image.gateways, image.nodes[1].fenced) == ({}, False)


@pytest.mark.parametrize("present", [(), (1,), (3,)])
def test_a_process_that_has_ended_is_succeeded_only_by_nodes_that_are_there(present: tuple[int, ...]) -> None:
    image = cluster((1, 2), (1, 2), 1)
    assert on_process_ended(image, 1, present).records == ()


def test_a_node_without_partitions_is_fenced_once_it_has_ended_unless_it_is_the_only_one() -> None:
    image = cluster((1, 2), (1, 2), 1)
    assert on_process_ended(image, 3, ()).records == ()
    assert after(image, on_process_ended(image, 3, (1,))).nodes[3].fenced
