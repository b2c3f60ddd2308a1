"""ReportReplicas: what a log that cannot be used means for who leads and who is in sync."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller import limits
from barnabas.controller.core.configs import alter_configs
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.controller.core.replica_reports import report_replicas
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import NO_LEADER, MetadataImage, topic_key

TOPIC = b"t" * 16

State = tuple[int, int, int, list[int], list[int], list[int]]
"""(leader, leader epoch, partition epoch, in-sync replicas, eligible ones, offline ones)"""


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def node(node_id: int, incarnation: str = "a") -> md.NodeRecord:
    return md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address=f"n{node_id}")


def cluster(replicas: Sequence[int], isr: Sequence[int]) -> MetadataImage:
    """Three live nodes and one partition, led by the first in-sync replica in leader epoch 5."""
    image = MetadataImage()
    for node_id in (1, 2, 3):
        image = after(image, register_node(image, node(node_id)))
    partition = md.PartitionRecord(topic_id=TOPIC, leader=isr[0], replicas=replicas, isr=isr, leader_epoch=5)
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def report(node_id: int, *offline: bool, incarnation: str = "a", index: int = 0) -> pb.ReportReplicasRequest:
    replicas = [pb.ReplicaReport(topic_id=TOPIC, partition=index, offline=each) for each in offline]
    return pb.ReportReplicasRequest(node_id=node_id, incarnation_id=incarnation, replicas=replicas)


def reported(image: MetadataImage, node_id: int, *offline: bool) -> MetadataImage:
    return after(image, report_replicas(image, report(node_id, *offline)))


def state(image: MetadataImage) -> State:
    p = image.topics["t"].partitions[0]
    eligible, offline = list(p.eligible_leader_replicas), list(p.offline_replicas)
    return p.leader, p.leader_epoch, p.partition_epoch, list(p.isr), eligible, offline


def test_another_leads_while_the_leaders_log_is_offline() -> None:
    image = reported(cluster((1, 2, 3), (1, 2, 3)), 1, True)
    assert state(image) == (2, 6, 1, [2, 3], [], [1])
    image = reported(image, 1, False)
    assert state(image) == (2, 6, 2, [2, 3], [], []), "it gets in sync as any other"


def test_a_follower_whose_log_is_offline_leaves_the_isr() -> None:
    assert state(reported(cluster((1, 2), (1, 2)), 2, True)) == (1, 5, 1, [1], [], [2])


def test_who_alone_has_everything_leads_again_once_its_log_can_be_used() -> None:
    image = reported(cluster((1, 2), (1,)), 1, True)
    assert state(image) == (NO_LEADER, 6, 1, [], [1], [1])
    image = reported(image, 1, False)
    assert state(image) == (1, 7, 2, [1], [], [])


def refuses_writes(image: MetadataImage, node_id: int) -> MetadataImage:
    request = report(node_id, True)
    request.replicas[0].refuses_writes = True
    return after(image, report_replicas(image, request))


def test_another_leads_while_the_leaders_disk_refuses_to_write() -> None:
    image = refuses_writes(cluster((1, 2, 3), (1, 2, 3)), 1)
    assert state(image) == (2, 6, 1, [2, 3], [], [1])
    image = refuses_writes(image, 2)
    assert state(image) == (3, 7, 2, [3], [], [1, 2])
    assert state(refuses_writes(image, 3)) == state(image), "it is better than none"
    image = reported(image, 1, False)
    assert state(image) == (3, 7, 3, [3], [], [2])


def test_a_follower_whose_disk_refuses_to_write_leaves_the_isr() -> None:
    assert state(refuses_writes(cluster((1, 2), (1, 2)), 2)) == (1, 5, 1, [1], [], [2])


@pytest.mark.parametrize("away", ["fenced", "offline"])
def test_who_refuses_to_write_leads_on_while_nobody_else_in_sync_can(away: str) -> None:
    """Of those who have left, one may still be eligible: to be elected it needs more than that this one goes."""
    image = cluster((1, 2), (1, 2))
    image = after(image, fence_node(image, 2)) if away == "fenced" else reported(image, 2, True)
    assert state(image)[0] == 1
    assert state(refuses_writes(image, 1)) == state(image)


def test_who_refuses_to_write_and_has_everything_leads_again_when_the_others_are_gone() -> None:
    operation = pb.ConfigOperation(name="min.insync.replicas", value="2")
    change = pb.ConfigResourceChange(resource_type=2, resource_name="t", operations=[operation])
    image = cluster((1, 2), (1, 2))
    image = after(image, alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[change])))
    image = refuses_writes(image, 1)
    assert state(image) == (2, 6, 1, [2], [1], [1]), "nothing is committed by one alone"
    image = after(image, fence_node(image, 2))
    assert state(image)[0] == NO_LEADER
    image = reported(image, 1, False)
    assert (state(image)[0], state(image)[3]) == (1, [1])


def test_news_that_is_none_changes_nothing() -> None:
    image = cluster((1, 2), (1, 2))
    assert report_replicas(image, report(2, False)).records == ()
    image = reported(image, 2, True)
    assert report_replicas(image, report(2, True)).records == ()
    assert len(report_replicas(image, report(2, False, True, False)).records) == 1


@pytest.mark.parametrize(
    ("replicas", "node_id", "index"),
    [((1,), 1, 0), ((1, 2), 3, 0), ((1, 2), 1, 1)],
    ids=["the only replica", "not a replica", "no such partition"],
)
def test_replicas_that_nobody_could_take_over_from_are_passed_over(
    replicas: tuple[int, ...], node_id: int, index: int
) -> None:
    image = cluster(replicas, replicas)
    assert report_replicas(image, report(node_id, True, index=index)).records == ()


def test_only_the_nodes_own_process_reports() -> None:
    image = cluster((1, 2), (1, 2))
    with pytest.raises(KafkaError) as refused:
        report_replicas(image, report(1, True, incarnation="b"))
    assert refused.value.code == ErrorCode.stale_broker_epoch


def test_a_report_has_its_limit() -> None:
    image = cluster((1, 2), (1, 2))
    most = [True] * limits.REPLICA_REPORTS_MAX
    assert report_replicas(image, report(1, *most)).records
    with pytest.raises(KafkaError) as refused:
        report_replicas(image, report(1, *most, True))
    assert refused.value.code == ErrorCode.invalid_request


def test_nobody_elects_an_offline_replica() -> None:
    image = reported(cluster((1, 2), (1, 2)), 2, True)
    image = after(image, fence_node(image, 1))
    assert state(image) == (NO_LEADER, 6, 2, [], [1], [2])
    image = after(image, register_node(image, node(2)))
    assert state(image)[0] == NO_LEADER


@pytest.mark.parametrize(("leader", "eligible"), [(1, []), (NO_LEADER, [2])])
def test_who_was_eligible_by_another_min_insync_replicas_is_so_only_while_nobody_leads(
    leader: int, eligible: list[int]
) -> None:
    image = cluster((1, 2, 3), (1,))
    partition = image.topics["t"].partitions[0]
    changed = md.PartitionRecord()
    changed.CopyFrom(partition)
    changed.leader = leader
    changed.isr[:] = [] if leader == NO_LEADER else [1]
    changed.eligible_leader_replicas[:] = [2]
    image = image.apply([partition_entry(changed)], image.revision + 1)
    for value in ("2", "1"):
        operation = pb.ConfigOperation(name="min.insync.replicas", operation=0, value=value)
        change = pb.ConfigResourceChange(resource_type=2, resource_name="t", operations=[operation])
        request = pb.IncrementalAlterConfigsRequest(resources=[change])
        image = after(image, alter_configs(image, request))
    assert (state(image)[0], state(image)[4]) == (leader, eligible)
    assert state(image)[2] == (1 if leader == 1 else 0)


def test_only_a_replica_whose_log_can_be_used_gets_in_sync() -> None:
    image = reported(cluster((1, 2), (1, 2)), 2, True)
    known = image.topics["t"].partitions[0]
    proposal = pb.IsrProposal(
        topic_id=TOPIC,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        isr=[pb.IsrMember(node_id=each, broker_epoch=-1) for each in (1, 2)],
    )
    request = pb.AlterPartitionRequest(node_id=1, node_epoch=image.nodes[1].node_epoch, partitions=[proposal])
    (result,) = alter_partitions(image, request).response.results
    assert result.error_code == ErrorCode.ineligible_replica


def test_a_new_process_says_anew_what_cannot_be_used() -> None:
    image = reported(cluster((1, 2), (1, 2)), 2, True)
    image = after(image, register_node(image, node(2)))
    assert state(image)[5] == [2], "it is the same process"
    image = after(image, register_node(image, node(2, "b")))
    assert state(image)[5] == []
