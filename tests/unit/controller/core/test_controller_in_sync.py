"""Leaders propose who is in sync: what is accepted, what is refused, and with which of Kafka's codes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller import limits
from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.nodes import fence_node, hand_over, register_node
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, topic_key

TOPIC = b"t" * 16
LEADER = 1
LEADER_EPOCH = 5
PARTITION_EPOCH = 8

Member = int | tuple[int, int]
"""A node under the epoch that it is registered under, or under another."""


def register(image: MetadataImage, node_id: int, incarnation: str = "a") -> MetadataImage:
    node = md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address="n")
    return image.apply(register_node(image, node).records, image.revision + 1)


def cluster(isr: Sequence[int] = (1, 2)) -> MetadataImage:
    """Nodes 1 to 4, and one partition of 1, 2 and 3 that node 1 leads."""
    image = MetadataImage()
    for node_id in (1, 2, 3, 4):
        image = register(image, node_id)
    partition = md.PartitionRecord(
        topic_id=TOPIC,
        leader=LEADER,
        leader_epoch=LEADER_EPOCH,
        partition_epoch=PARTITION_EPOCH,
        replicas=(1, 2, 3),
        isr=isr,
        coordinator_epoch=3,
    )
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def proposal(image: MetadataImage, *isr: Member, **changes: object) -> pb.IsrProposal:
    members = []
    for member in isr:
        node_id, epoch = member if isinstance(member, tuple) else (member, -2)
        if epoch == -2:
            epoch = image.nodes[node_id].node_epoch if node_id in image.nodes else -1
        members.append(pb.IsrMember(node_id=node_id, broker_epoch=epoch))
    fields: dict[str, object] = {
        "topic_id": TOPIC,
        "leader_epoch": LEADER_EPOCH,
        "partition_epoch": PARTITION_EPOCH,
    }
    return pb.IsrProposal(isr=members, **(fields | changes))  # type: ignore[arg-type]


def asked(
    image: MetadataImage, *proposals: pb.IsrProposal, sender: int = LEADER
) -> tuple[MetadataImage, list[pb.IsrResult]]:
    request = pb.AlterPartitionRequest(
        node_id=sender, node_epoch=image.nodes[sender].node_epoch, partitions=proposals
    )
    decision = alter_partitions(image, request)
    after = image.apply(decision.records, image.revision + 1) if decision.records else image
    return after, list(decision.response.results)


def refused(image: MetadataImage, *proposals: pb.IsrProposal, sender: int = LEADER) -> ErrorCode:
    after, results = asked(image, *proposals, sender=sender)
    assert after is image, "nothing is stored of what is refused"
    (result,) = results
    assert not result.HasField("partition")
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("isr", [(1,), (3, 2, 1)])
def test_the_isr_is_what_the_leader_proposes_under_a_new_partition_epoch(isr: tuple[int, ...]) -> None:
    image = cluster()
    after, (result,) = asked(image, proposal(image, *isr))
    stored = after.topics["t"].partitions[0]
    assert result == pb.IsrResult(partition=stored)
    assert list(stored.isr) == sorted(isr), "in the order of the replicas"
    assert (stored.leader, stored.leader_epoch, stored.partition_epoch) == (
        1,
        LEADER_EPOCH,
        PARTITION_EPOCH + 1,
    )
    assert stored.coordinator_epoch == 3


def test_what_is_so_already_is_accepted_and_changes_nothing() -> None:
    image = cluster()
    after, (result,) = asked(image, proposal(image, 2, 1))
    assert after is image
    assert result == pb.IsrResult(partition=image.topics["t"].partitions[0])


def test_the_same_proposal_again_is_accepted_after_its_answer_was_lost() -> None:
    image = cluster()
    same = proposal(image, 1, 2, 3)
    after, _ = asked(image, same)
    again, (result,) = asked(after, same)
    assert again is after
    assert result == pb.IsrResult(partition=after.topics["t"].partitions[0])
    assert result.partition.partition_epoch == PARTITION_EPOCH + 1


def test_the_same_proposal_is_void_once_something_else_was_decided() -> None:
    image = cluster()
    same = proposal(image, 1, 2, 3)
    image, _ = asked(image, same)
    image = image.apply(fence_node(image, 3).records, image.revision + 1)
    assert refused(image, same) == ErrorCode.invalid_update_version


def test_a_partition_twice_in_one_request_is_decided_once() -> None:
    image = cluster()
    after, (first, second) = asked(image, proposal(image, 1), proposal(image, 1, 2, 3))
    assert list(after.topics["t"].partitions[0].isr) == [1] == list(first.partition.isr)
    assert second.error_code == ErrorCode.invalid_update_version


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic_id": b"x" * 16}, ErrorCode.unknown_topic_id),
        ({"topic_id": b""}, ErrorCode.unknown_topic_id),
        ({"topic_id": bytes(16)}, ErrorCode.unknown_topic_id),
        ({"partition": 1}, ErrorCode.unknown_topic_or_partition),
        ({"partition": -1}, ErrorCode.unknown_topic_or_partition),
        ({"leader_epoch": LEADER_EPOCH + 1}, ErrorCode.not_controller),
        ({"partition_epoch": PARTITION_EPOCH + 1}, ErrorCode.not_controller),
        (
            {"partition_epoch": PARTITION_EPOCH + 1, "leader_epoch": LEADER_EPOCH - 1},
            ErrorCode.not_controller,
        ),
        ({"leader_epoch": LEADER_EPOCH - 1}, ErrorCode.fenced_leader_epoch),
        ({"partition_epoch": PARTITION_EPOCH - 1}, ErrorCode.invalid_update_version),
    ],
)
def test_what_does_not_go_by_the_newest_state_is_refused(changes: dict[str, object], code: ErrorCode) -> None:
    image = cluster()
    assert refused(image, proposal(image, 1, 2, 3, **changes)) == code


@pytest.mark.parametrize("isr", [(), (2,), (2, 3), (1, 2, 2), (1, 4), (1, 9)])
def test_an_isr_that_cannot_be_is_refused(isr: tuple[int, ...]) -> None:
    image = cluster()
    assert refused(image, proposal(image, *isr)) == ErrorCode.invalid_request


def test_only_the_leader_proposes() -> None:
    image = cluster()
    assert refused(image, proposal(image, 1, 2, 3), sender=2) == ErrorCode.invalid_request
    old = proposal(image, 1, 2, leader_epoch=LEADER_EPOCH - 1, partition_epoch=0)
    assert refused(image, old, sender=2) == ErrorCode.fenced_leader_epoch


def test_the_order_of_the_checks() -> None:
    image = cluster()
    late = proposal(image, 1, 4, partition_epoch=PARTITION_EPOCH - 1)
    assert refused(image, late, sender=2) == ErrorCode.invalid_request, "who does not lead hears that first"
    assert refused(image, late) == ErrorCode.invalid_update_version, "before its members are looked at"


def test_a_member_must_be_there_under_the_epoch_that_it_fetched_with() -> None:
    image = cluster()
    epoch = image.nodes[3].node_epoch
    assert refused(image, proposal(image, 1, 2, (3, epoch - 1))) == ErrorCode.ineligible_replica
    assert refused(image, proposal(image, 1, 2, (3, epoch + 1))) == ErrorCode.ineligible_replica
    _, (result,) = asked(image, proposal(image, 1, 2, (3, -1)))
    assert result.error_code == 0, "a leader that does not know the epoch leaves it to the controller"
    restarted = register(image, 3, "b")
    assert refused(restarted, proposal(image, 1, 2, 3)) == ErrorCode.ineligible_replica


def test_a_member_that_is_fenced_or_stopping_or_was_never_there_is_ineligible() -> None:
    image = cluster()
    asking = proposal(image, 1, 2, 3)
    fenced = image.apply(fence_node(image, 3).records, image.revision + 1)
    assert refused(fenced, asking) == ErrorCode.ineligible_replica
    leaving = pb.HandOverRequest(node_id=3, incarnation_id="a")
    stopping = image.apply(hand_over(image, leaving, (1, 2)).records, image.revision + 1)
    assert refused(stopping, asking) == ErrorCode.ineligible_replica
    gone = image.apply([md.MetadataRecord(key="nodes/3")], image.revision + 1)
    assert refused(gone, asking) == ErrorCode.ineligible_replica


def test_a_node_that_came_back_as_the_same_process_is_eligible_again() -> None:
    image = cluster()
    asking = proposal(image, 1, 2, 3)
    image = image.apply(fence_node(image, 3).records, image.revision + 1)
    image = register(image, 3)
    after, (result,) = asked(image, asking)
    assert result.error_code == 0
    assert list(after.topics["t"].partitions[0].isr) == [1, 2, 3]


def test_one_refusal_does_not_touch_the_others() -> None:
    image = cluster()
    wrong = proposal(image, 1, 2, 3, partition=7)
    after, (first, second) = asked(image, wrong, proposal(image, 1))
    assert first.error_code == ErrorCode.unknown_topic_or_partition
    assert second.error_code == 0
    assert list(after.topics["t"].partitions[0].isr) == [1]


@pytest.mark.parametrize(("node_id", "ahead"), [(1, 1), (1, -1), (9, 0)])
def test_a_process_that_is_not_the_nodes_is_refused_as_a_whole(node_id: int, ahead: int) -> None:
    image = cluster()
    epoch = image.nodes[1].node_epoch + ahead
    request = pb.AlterPartitionRequest(node_id=node_id, node_epoch=epoch, partitions=[proposal(image, 1)])
    with pytest.raises(KafkaError) as refusal:
        alter_partitions(image, request)
    assert refusal.value.code == ErrorCode.stale_broker_epoch


def test_a_request_has_a_limit() -> None:
    image = cluster()
    request = pb.AlterPartitionRequest(
        node_id=1,
        node_epoch=image.nodes[1].node_epoch,
        partitions=[pb.IsrProposal()] * (limits.ISR_PROPOSALS_MAX + 1),
    )
    with pytest.raises(KafkaError) as refusal:
        alter_partitions(image, request)
    assert refusal.value.code == ErrorCode.invalid_request
