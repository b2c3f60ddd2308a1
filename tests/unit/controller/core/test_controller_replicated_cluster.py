"""Nodes come, go, stop and restart, leaders propose, partitions are created and moved: replicated partitions keep their
rules whatever the order."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.elect_leaders import elect_leaders, elect_preferred_leaders
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.nodes import fence_node, hand_over, on_process_ended, register_node
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.controller.core.topics import create_topics
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import NO_LEADER, MetadataImage

NODES = st.integers(1, 4)
PARTITIONS = st.integers(0, 2)


class ReplicatedCluster(RuleBasedStateMachine):
    """One topic of three partitions on four nodes. Nothing unclean happens."""

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage()
        self.number = itertools.count()

    def do(self, decision: Decision[object]) -> None:
        """Store the decision, and hold each partition that it changes against what it was."""
        before, self.image = self.image, self.image.apply(decision.records, self.image.revision + 1)
        for old, new in zip(self.partitions(before), self.partitions(self.image), strict=False):
            if old == new:
                continue
            assert new.partition_epoch == old.partition_epoch + 1
            assert new.leader_epoch - old.leader_epoch in (0, 1)
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
            if new.leader != NO_LEADER and not (old.adding_replicas or old.removing_replicas):
                assert new.leader in (
                    *old.isr,
                    *old.eligible_leader_replicas,
                    *old.last_known_eligible_leader_replicas,
                ), "only who was in sync leads, or has all that is committed, or led last"

    def partitions(self, image: MetadataImage) -> list[md.PartitionRecord]:
        return list(image.topics["t"].partitions) if "t" in image.topics else []

    def register(self, node_id: int, incarnation: str) -> None:
        node = md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address="n", rack=str(node_id % 2))
        self.do(register_node(self.image, node))

    @initialize(factor=st.integers(1, 3))
    def begin(self, factor: int) -> None:
        for node_id in (1, 2, 3, 4):
            self.register(node_id, "first")
        request = pb.CreateTopicsRequest(
            topics=[pb.NewTopic(name="t", partition_count=3, replication_factor=factor)]
        )
        self.do(create_topics(self.image, request, ClusterDefaults(), lambda: b"t" * 16))

    @rule(node_id=NODES)
    def a_node_starts_anew(self, node_id: int) -> None:
        before = self.partitions(self.image)
        self.register(node_id, f"life {next(self.number)}")
        for old, new in zip(before, self.partitions(self.image), strict=True):
            assert node_id not in new.isr or set(old.isr) <= {node_id}, "in sync where nobody else was"
            assert node_id not in (old.leader, new.leader) or new.leader_epoch > old.leader_epoch

    @rule(node_id=NODES)
    def a_node_comes_back(self, node_id: int) -> None:
        self.register(node_id, self.image.nodes[node_id].incarnation_id)

    @rule(node_id=NODES)
    def a_node_is_fenced(self, node_id: int) -> None:
        self.do(fence_node(self.image, node_id))

    @rule(node_id=NODES, present=st.sets(NODES))
    def a_process_ends(self, node_id: int, present: set[int]) -> None:
        self.do(on_process_ended(self.image, node_id, present))
        if self.image.nodes[node_id].fenced:
            return
        others = (self.image.eligible_epochs.keys() & present) - {node_id}
        for partition in self.partitions(self.image):
            assert node_id not in partition.isr or others.isdisjoint(partition.isr)

    @rule(node_id=NODES, present=st.sets(NODES))
    def a_node_hands_over(self, node_id: int, present: set[int]) -> None:
        node = self.image.nodes[node_id]
        if node.fenced:
            return
        led = [partition.leader == node_id for partition in self.partitions(self.image)]
        request = pb.HandOverRequest(node_id=node_id, incarnation_id=node.incarnation_id)
        decision = hand_over(self.image, request, present)
        self.do(decision)
        others = (self.image.eligible_epochs.keys() & present) - {node_id}
        if others == self.image.eligible_epochs.keys() - {node_id}:
            assert decision.response.led_partitions == 0
        for had, partition in zip(led, self.partitions(self.image), strict=True):
            assert not had or partition.leader != NO_LEADER, "no partition is without a leader because of it"
            assert not had or partition.leader in {node_id} | others, (
                "it leads on, or one that is present does"
            )
            assert node_id not in partition.isr or others.isdisjoint(partition.isr)

    @rule(index=PARTITIONS, wanted=st.sets(NODES), late=st.integers(0, 2), known=st.booleans())
    def a_leader_proposes(self, index: int, wanted: set[int], late: int, known: bool) -> None:
        partition = self.partitions(self.image)[index]
        if partition.leader == NO_LEADER:
            return
        isr = sorted(wanted | {partition.leader})
        proposal = pb.IsrProposal(
            topic_id=partition.topic_id,
            partition=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch - late,
            isr=[
                pb.IsrMember(node_id=node, broker_epoch=self.image.nodes[node].node_epoch if known else -1)
                for node in isr
            ],
        )
        request = pb.AlterPartitionRequest(
            node_id=partition.leader,
            node_epoch=self.image.nodes[partition.leader].node_epoch,
            partitions=[proposal],
        )
        for _ in range(2):  # the second time as after a lost answer
            leader = self.partitions(self.image)[index].leader
            decision = alter_partitions(self.image, request)
            if leader != request.node_id:
                return
            self.do(decision)
            (result,) = decision.response.results
            if result.error_code == 0:
                assert sorted(result.partition.isr) in (
                    isr,
                    sorted(set(isr) & set(result.partition.replicas)),
                )
                assert result.partition == self.partitions(self.image)[index]

    @rule(index=PARTITIONS)
    def the_preferred_leader_is_elected(self, index: int) -> None:
        topic = pb.ElectedTopic(name="t", partitions=[index])
        decision = elect_leaders(self.image, pb.ElectLeadersRequest(topics=[topic]))
        self.do(decision)
        result = decision.response.topics[0].partitions[0].result
        if result.error_code in (ErrorCode.none, ErrorCode.election_not_needed):
            partition = self.partitions(self.image)[index]
            assert partition.leader == partition.replicas[0] or partition.replicas[0] not in partition.isr

    @rule()
    def preferred_leaders_lead_again(self) -> None:
        self.do(elect_preferred_leaders(self.image, 10))
        assert elect_preferred_leaders(self.image, 10).records == ()

    @rule(
        index=PARTITIONS, replicas=st.lists(NODES, min_size=1, max_size=3, unique=True), cancel=st.booleans()
    )
    def a_partition_is_moved(self, index: int, replicas: list[int], cancel: bool) -> None:
        wanted = pb.PartitionReassignment(
            topic="t", partition=index, replicas=() if cancel else replicas, cancel=cancel
        )
        request = pb.AlterPartitionReassignmentsRequest(
            partitions=[wanted], allow_replication_factor_change=True
        )
        self.do(alter_partition_reassignments(self.image, request))

    @invariant()
    def every_partition_is_as_it_must_be(self) -> None:
        image = self.image
        for partition in self.partitions(image):
            isr, replicas = list(partition.isr), list(partition.replicas)
            eligible = list(partition.eligible_leader_replicas)
            last_known = list(partition.last_known_eligible_leader_replicas)
            assert isr or eligible or last_known, "somebody has most records"
            assert set(isr).isdisjoint(eligible)
            assert set(eligible) <= set(replicas)
            assert set(last_known) <= set(replicas)
            assert not last_known or partition.leader == NO_LEADER
            assert len(set(isr)) == len(isr)
            assert set(isr) <= set(replicas)
            assert len(set(replicas)) == len(replicas)
            assert set(partition.adding_replicas) <= set(replicas)
            assert set(partition.removing_replicas) <= set(replicas)
            if len(isr) > 1:
                there = {node.node_id for node in image.live_nodes()}
                assert there >= set(isr), "only the last one stays when it goes"
            if partition.leader == NO_LEADER:
                assert image.eligible_epochs.keys().isdisjoint(isr), "there is nobody who could lead"
            else:
                assert partition.leader in isr
                assert not image.nodes[partition.leader].fenced


TestReplicatedCluster = ReplicatedCluster.TestCase
TestReplicatedCluster.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
