"""Services come, go and restart: leaders, epochs and coordinators keep their rules whatever the order."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from barnabas.controller.core.coordinators import register_coordinator, remove_coordinator
from barnabas.controller.core.decision import ClusterDefaults, Decision, partition_entry
from barnabas.controller.core.deletion import delete_topics
from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.topics import create_topics
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import GROUP_METADATA_TOPIC, NO_LEADER, MetadataImage, topic_key


def node(node_id: int, incarnation: str = "a") -> md.NodeRecord:
    return md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address=f"n{node_id}")


def coordinator(name: str, incarnation: str = "a") -> md.CoordinatorRecord:
    return md.CoordinatorRecord(coordinator_id=name, incarnation_id=incarnation, address=name)


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def replicated(*replicas: int, isr: list[int], leader: int) -> MetadataImage:
    """Three live nodes and one partition with these replicas."""
    image = MetadataImage()
    for node_id in (1, 2, 3):
        image = after(image, register_node(image, node(node_id)))
    partition = md.PartitionRecord(
        topic_id=b"t" * 16, leader=leader, replicas=replicas, isr=isr, leader_epoch=5
    )
    topic = md.TopicRecord(name="t", topic_id=b"t" * 16, partition_count=1)
    records = [partition_entry(partition), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def trace(image: MetadataImage) -> tuple[int, int, int, list[int]]:
    """(leader, leader epoch, partition epoch, in-sync replicas) of the one partition."""
    p = image.topics["t"].partitions[0]
    return p.leader, p.leader_epoch, p.partition_epoch, list(p.isr)


def test_scenario_a_replicated_partition_loses_its_nodes_one_by_one() -> None:
    image = replicated(1, 2, 3, isr=[1, 2, 3], leader=1)
    image = after(image, fence_node(image, 2))
    assert trace(image) == (1, 5, 1, [1, 3])
    image = after(image, fence_node(image, 1))
    assert trace(image) == (3, 6, 2, [3])
    image = after(image, fence_node(image, 3))
    assert trace(image) == (NO_LEADER, 7, 3, [])
    image = after(image, register_node(image, node(1)))
    assert trace(image) == (NO_LEADER, 7, 3, []), "a replica out of sync does not lead"
    image = after(image, register_node(image, node(3)))
    assert trace(image) == (3, 8, 4, [3])


def test_scenario_a_leader_restarts() -> None:
    image = replicated(1, 2, isr=[1, 2], leader=1)
    moved = after(image, register_node(image, node(1, "b")))
    assert trace(moved) == (2, 6, 1, [2])
    alone = replicated(1, isr=[1], leader=1)
    stayed = after(alone, register_node(alone, node(1, "b")))
    assert trace(stayed) == (1, 6, 1, [1])
    follower = replicated(1, 2, isr=[1, 2], leader=1)
    assert trace(after(follower, register_node(follower, node(2, "b")))) == (1, 5, 1, [1])


def test_nodes_get_the_places_they_wish_for_whoever_comes_first() -> None:
    image = MetadataImage()
    for node_id in (3, 1, 2):
        wish = node(node_id)
        wish.position = node_id - 1
        image = after(image, register_node(image, wish))
    assert {n.node_id: n.position for n in image.nodes.values()} == {1: 0, 2: 1, 3: 2}
    wish = node(4)
    wish.position = 0
    image = after(image, register_node(image, wish))
    assert image.nodes[4].position == 3, "a place that is taken is no reason to refuse a node"


def test_positions_are_the_smallest_free_and_kept() -> None:
    image = MetadataImage()
    for node_id in (7, 3, 5):
        image = after(image, register_node(image, node(node_id)))
    image = after(image, fence_node(image, 3))
    image = after(image, register_node(image, node(9)))
    image = after(image, register_node(image, node(3, "b")))
    assert {n.node_id: n.position for n in image.nodes.values()} == {7: 0, 3: 1, 5: 2, 9: 3}


def test_registering_again_as_the_same_process_changes_nothing() -> None:
    image = after(MetadataImage(), register_node(MetadataImage(), node(1)))
    assert not register_node(image, node(1)).records
    image = after(image, register_coordinator(image, coordinator("c")))
    assert not register_coordinator(image, coordinator("c")).records


class Cluster(RuleBasedStateMachine):
    """Random joins, departures, restarts, creations and deletions, with replication factor 1."""

    topics = Bundle("topics")

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage()
        self.number = itertools.count()
        self.epochs: dict[str, tuple[int, int, int]] = {}
        self.node_epochs: dict[int, int] = {}
        self.is_shared_evenly = True
        """Whether nobody has been left out since partitions were shared among all."""

    def do(self, decision: Decision[object]) -> None:
        before, self.image = self.image, after(self.image, decision)
        assert MetadataImage().apply(self.image.records.values(), 1).topics == self.image.topics
        for record in decision.records:
            assert record.WhichOneof("value") is not None or record.key in before.records

    @rule(node_id=st.integers(1, 4), new_process=st.booleans())
    def node_comes(self, node_id: int, new_process: bool) -> None:
        incarnation = str(next(self.number)) if new_process else "same"
        self.do(register_node(self.image, node(node_id, incarnation)))

    @rule(node_id=st.integers(1, 4))
    def node_goes(self, node_id: int) -> None:
        self.do(fence_node(self.image, node_id))

    @rule(
        name=st.sampled_from("abc"),
        new_process=st.booleans(),
        absent=st.sets(st.sampled_from("abc"), max_size=2),
    )
    def coordinator_comes(self, name: str, new_process: bool, absent: set[str]) -> None:
        absent &= set(self.image.coordinators)
        before = self._owners()
        incarnation = str(next(self.number)) if new_process else "same"
        owned = [p for t in self.image.topics.values() for p in t.partitions if p.coordinator_id == name]
        known = self.image.coordinators.get(name)
        self.do(register_coordinator(self.image, coordinator(name, incarnation), absent))
        self.is_shared_evenly = not absent - {name}
        for place, owner in self._owners().items():
            assert owner == before[place] or owner not in absent - {name}
        if known is not None and known.incarnation_id != incarnation:
            for p in owned:
                now = self.image.partition(p.topic_id, p.partition)
                assert now is not None
                assert now.coordinator_epoch > p.coordinator_epoch
                assert now.leader_epoch == p.leader_epoch

    @rule(name=st.sampled_from("abc"))
    def coordinator_goes(self, name: str) -> None:
        self.is_shared_evenly |= name in self.image.coordinators
        self.do(remove_coordinator(self.image, name))

    @rule(name=st.sampled_from("abc"), heirs=st.sets(st.sampled_from("abc"), min_size=1))
    def coordinator_hands_over(self, name: str, heirs: set[str]) -> None:
        heirs = heirs & set(self.image.coordinators) - {name}
        before = self._owners()
        self.is_shared_evenly &= not heirs or heirs == set(self.image.coordinators) - {name}
        self.do(remove_coordinator(self.image, name, heirs))
        for place, owner in self._owners().items():
            if owner != before[place]:
                assert heirs
                assert owner in heirs
                assert before[place] in {name, "", *heirs}

    def _owners(self) -> dict[tuple[str, int], str]:
        return {
            (topic.name, each.partition): each.coordinator_id
            for topic in self.image.topics.values()
            for each in topic.partitions
        }

    @rule(target=topics, name=st.sampled_from(["x", "y", GROUP_METADATA_TOPIC]), count=st.integers(1, 9))
    def create(self, name: str, count: int) -> str:
        topic = pb.NewTopic(name=name, partition_count=count, replication_factor=1)
        request = pb.CreateTopicsRequest(topics=[topic])
        topic_id = next(self.number).to_bytes(16, "big")
        self.do(create_topics(self.image, request, ClusterDefaults(), lambda: topic_id))
        return name

    @rule(name=topics, more=st.integers(1, 5))
    def enlarge(self, name: str, more: int) -> None:
        if name in self.image.topics:
            count = len(self.image.topics[name].partitions) + more
            new = pb.NewPartitions(name=name, partition_count=count)
            self.do(create_partitions(self.image, pb.CreatePartitionsRequest(topics=[new])))

    @rule(name=consumes(topics))
    def delete(self, name: str) -> None:
        self.do(delete_topics(self.image, pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=name)]), now_ms=5))

    @invariant()
    def a_partition_has_a_leader_exactly_while_its_replica_lives(self) -> None:
        live = {n.node_id for n in self.image.live_nodes()}
        for topic in self.image.topics.values():
            for p in topic.partitions:
                assert (p.leader in live) == (p.replicas[0] in live)
                assert p.leader in (NO_LEADER, p.replicas[0])
                assert list(p.isr or p.eligible_leader_replicas) == list(p.replicas)

    @invariant()
    def epochs_never_go_back(self) -> None:
        for key, record in self.image.records.items():
            if record.WhichOneof("value") == "partition":
                p = record.partition
                now = p.leader_epoch, p.partition_epoch, p.coordinator_epoch
                before = self.epochs.get(key, (0, 0, 0))
                assert all(epoch >= earlier for epoch, earlier in zip(now, before, strict=True))
                self.epochs[key] = now
        for node_id, n in self.image.nodes.items():
            assert n.node_epoch >= self.node_epochs.get(node_id, 0)
            self.node_epochs[node_id] = n.node_epoch

    @invariant()
    def coordinators_share_evenly(self) -> None:
        offsets = self.image.topics.get(GROUP_METADATA_TOPIC)
        if offsets is None:
            return
        counts = Counter(p.coordinator_id for p in offsets.partitions)
        if not self.image.coordinators:
            assert set(counts) == {""}
            return
        sizes = [counts[name] for name in self.image.coordinators]
        assert sum(sizes) == len(offsets.partitions)
        if self.is_shared_evenly:
            assert max(sizes) - min(sizes) <= 1

    @invariant()
    def positions_are_distinct(self) -> None:
        positions = [n.position for n in self.image.nodes.values()]
        assert sorted(positions) == list(range(len(positions)))


Cluster.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestCluster = Cluster.TestCase
