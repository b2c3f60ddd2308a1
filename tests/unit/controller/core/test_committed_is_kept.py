"""Whatever happens to nodes, and whatever is asked for in whatever order: nobody leads who lacks what was committed
while somebody is known who has it, and a partition has a leader, or waits for somebody who may lead when he comes back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from committed_model import NOBODY, TOPIC_ID, Process, common_prefix
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.controller.core.configs import alter_configs
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.elect_leaders import (
    elect_leaders,
    elect_preferred_leaders,
    elect_unclean_leaders,
)
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.nodes import fence_node, hand_over, on_process_ended, register_node
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.controller.core.replica_reports import report_replicas
from barnabas.controller.core.unregistration import unregister_node
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.effective import effective_topic_setting
from barnabas.metadata.image import MetadataImage, topic_key

NODES = (1, 2, 3, 4)
SOME_NODE = st.sampled_from(NODES)


@contextlib.contextmanager
def may_be_refused(*codes: ErrorCode) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        if error.code not in codes:
            raise


class Cluster(RuleBasedStateMachine):
    """One partition on some of four nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.history = [MetadataImage()]
        self.nodes = {node_id: Process(node_id) for node_id in NODES}
        self.committed: list[tuple[int, int]] = []
        self.appended = 0
        self.unclean_epoch = 0
        self.mail: list[pb.AlterPartitionRequest] = []
        self.is_given_up = self.is_asked_to_move = False
        self.wanted: tuple[set[int], list[int]] | None = None

    # -- the controller ------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.history[-1]

    @property
    def record(self) -> md.PartitionRecord:
        found = self.image.partition(TOPIC_ID, 0)
        assert found is not None
        return found

    def is_unclean(self) -> bool:
        return bool(effective_topic_setting(self.image, "t", "unclean.leader.election.enable").value)

    def do(
        self,
        decision: Decision[object],
        *,
        came: int = NOBODY,
        gone: int = NOBODY,
        joined: Collection[int] = (),
        may_be_unclean: bool = False,
    ) -> None:
        """The controller decides. `came`: the node has another process; `gone`: the node may have lost what it was
        known to have; `joined`: these have everything by now.
        """
        before = self.record
        if not decision.records:
            return
        self.history.append(self.image.apply(decision.records, self.image.revision + 1))
        after = self.record
        if after == before:
            return
        if set(after.replicas) < set(before.replicas) and not self.is_asked_to_move:
            assert set(before.adding_replicas) <= set(after.isr), "it ends before all new ones are in sync"
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch - before.leader_epoch in (0, 1)
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch
        if after.leader == NOBODY or after.leader_epoch == before.leader_epoch:
            return
        self.is_given_up = False
        trusted = {*before.isr, *before.eligible_leader_replicas, *joined} - {gone}
        if after.leader in trusted:
            return
        assert not trusted or may_be_unclean or self.is_unclean(), "somebody else has everything"
        able = self.image.eligible_epochs.keys() - set(after.offline_replicas)
        first = (set(before.isr) - {gone, came}) or trusted - {came}
        assert not first & able & set(after.replicas), "who has everything could lead"
        if not may_be_unclean and not self.is_unclean() and len(after.replicas) > 1:
            assert after.leader in (before.leader, *before.last_known_eligible_leader_replicas, *before.isr)
        kept = common_prefix(self.committed, self.nodes[after.leader].log)
        del self.committed[kept:]
        self.unclean_epoch = after.leader_epoch

    def ask(
        self, decision: Decision[object], *, joined: Collection[int] = (), may_be_unclean: bool = False
    ) -> None:
        """What an operator asks for takes no leader away."""
        leader = self.record.leader
        self.do(decision, joined=joined, may_be_unclean=may_be_unclean)
        if self.is_unclean():
            self.is_given_up |= self.record.leader == NOBODY
            return
        assert leader == NOBODY or self.record.leader != NOBODY, "an operator made the partition leaderless"

    # -- nodes -----------------------------------------------------------------------------------------------------

    @initialize(
        replicas=st.lists(SOME_NODE, min_size=1, max_size=3, unique=True),
        needed=st.integers(1, 3),
        unclean=st.sampled_from([False, False, False, True]),
    )
    def begin(self, replicas: list[int], needed: int, unclean: bool) -> None:
        topic = md.MetadataRecord(
            key=topic_key("t"), topic=md.TopicRecord(name="t", topic_id=TOPIC_ID, partition_count=1)
        )
        partition = md.PartitionRecord(topic_id=TOPIC_ID, leader=replicas[0], replicas=replicas, isr=replicas)
        image = MetadataImage()
        for node_id in NODES:
            record = self.as_record(self.nodes[node_id])
            image = image.apply(register_node(image, record).records, image.revision + 1)
        self.history.append(image.apply([topic, partition_entry(partition)], image.revision + 1))
        self.set("min.insync.replicas", str(needed))
        self.set("unclean.leader.election.enable", str(unclean).lower())
        for process in self.nodes.values():
            process.is_registered = True
            process.broker_epoch = self.image.nodes[process.node_id].node_epoch
            process.learn(self.image)

    def as_record(self, process: Process) -> md.NodeRecord:
        record = md.NodeRecord(
            node_id=process.node_id,
            incarnation_id=process.name,
            address="n",
            log_directory_ids=[process.directory],
        )
        if process.clean_epoch is not None and not process.is_registered:
            record.previous_node_epoch = process.clean_epoch
        return record

    @rule(node_id=SOME_NODE)
    def registers(self, node_id: int) -> None:
        process = self.nodes[node_id]
        if not process.is_alive:
            return
        known = self.image.nodes.get(node_id)
        decision = register_node(self.image, self.as_record(process))
        is_gone = known is None or (not process.is_registered and process.is_dirty)
        process.is_dirty, process.is_registered, process.clean_epoch = False, True, None
        if (is_gone and known is None) or (known and list(known.log_directory_ids) != [process.directory]):
            self.may_give_up(node_id)
        self.do(decision, came=node_id, gone=node_id if is_gone else NOBODY)
        process.broker_epoch = decision.response.node_epoch
        process.learn(self.image)

    def may_give_up(self, node_id: int) -> None:
        record = self.record
        known = {*record.isr, *record.eligible_leader_replicas, *record.last_known_eligible_leader_replicas}
        self.is_given_up |= node_id in known | {record.leader}

    @rule(node_id=SOME_NODE)
    def stops(self, node_id: int) -> None:
        process = self.nodes[node_id]
        if process.is_alive:
            process.is_alive = False
            if process.is_offline:
                process.clean_epoch, process.is_dirty = None, True
            elif process.is_registered:
                process.clean_epoch = process.broker_epoch

    @rule(node_id=SOME_NODE)
    def begins(self, node_id: int) -> None:
        if not self.nodes[node_id].is_alive:
            self.nodes[node_id].start()

    @rule(node_id=SOME_NODE, kept=st.integers(0, 8))
    def crashes(self, node_id: int, kept: int) -> None:
        process = self.nodes[node_id]
        del process.log[kept:]
        process.clean_epoch, process.is_dirty = None, True
        process.start()

    @rule(node_id=SOME_NODE)
    def loses_its_disk(self, node_id: int) -> None:
        process = self.nodes[node_id]
        process.log, process.clean_epoch, process.is_dirty = [], None, True
        process.start()
        process.directory = b"d%d" % process.incarnation

    @rule(node_id=SOME_NODE)
    def fenced(self, node_id: int) -> None:
        self.do(fence_node(self.image, node_id))

    @rule(node_id=SOME_NODE, present=st.sets(SOME_NODE))
    def process_ended(self, node_id: int, present: set[int]) -> None:
        process, known = self.nodes[node_id], self.image.nodes.get(node_id)
        if known is not None and (not process.is_alive or known.incarnation_id != process.name):
            self.do(on_process_ended(self.image, node_id, present))

    @rule(node_id=SOME_NODE, present=st.sets(SOME_NODE))
    def hands_over(self, node_id: int, present: set[int]) -> None:
        process = self.nodes[node_id]
        request = pb.HandOverRequest(node_id=node_id, incarnation_id=process.name)
        if process.is_alive and process.is_registered:
            with may_be_refused(ErrorCode.stale_broker_epoch):
                self.ask(hand_over(self.image, request, present))

    @rule(node_id=SOME_NODE)
    def is_unregistered(self, node_id: int) -> None:
        with may_be_refused(ErrorCode.broker_id_not_registered, ErrorCode.invalid_request):
            decision = unregister_node(self.image, pb.UnregisterBrokerRequest(node_id=node_id))
            self.may_give_up(node_id)
            self.do(decision, gone=node_id)

    @rule(node_id=SOME_NODE, offline=st.booleans())
    def reports(self, node_id: int, offline: bool) -> None:
        process = self.nodes[node_id]
        if not process.is_alive or not process.is_registered:
            return
        if offline and not process.is_offline:
            process.go_offline()
        elif not offline:
            process.is_offline = False
        report = pb.ReplicaReport(topic_id=TOPIC_ID, offline=offline)
        request = pb.ReportReplicasRequest(node_id=node_id, incarnation_id=process.name, replicas=[report])
        with may_be_refused(ErrorCode.stale_broker_epoch):
            self.do(report_replicas(self.image, request))

    # -- the log ---------------------------------------------------------------------------------------------------

    @rule(node_id=SOME_NODE, back=st.integers(0, 3))
    def learns(self, node_id: int, back: int) -> None:
        process = self.nodes[node_id]
        newer = [image for image in self.history if image.revision > process.image.revision]
        if process.is_alive and process.is_registered and newer:
            process.learn(newer[max(len(newer) - 1 - back, 0)])

    @rule(node_id=SOME_NODE)
    def appends(self, node_id: int) -> None:
        process = self.nodes[node_id]
        if process.leads:
            self.appended += 1
            process.log.append((process.led_epoch, self.appended))

    @rule(leader=SOME_NODE, follower=SOME_NODE, most=st.integers(0, 5))
    def fetches(self, leader: int, follower: int, most: int) -> None:
        source, copy = self.nodes[leader], self.nodes[follower]
        ready = source.leads and copy.is_alive and copy.is_registered and not copy.is_offline
        if ready and leader != follower:
            source.answer_fetch(copy, most)

    @rule(node_id=SOME_NODE)
    def commits(self, node_id: int) -> None:
        process = self.nodes[node_id]
        if not process.leads or process.is_short:
            return
        end = process.replicated()
        if end <= process.high_watermark:
            return
        process.high_watermark = end
        if process.led_epoch < self.unclean_epoch:
            return
        same = common_prefix(process.log[:end], self.committed)
        assert same == min(end, len(self.committed)), "two histories are committed"
        if end > same:
            self.committed = process.log[:end]

    @rule(followers=st.sets(SOME_NODE))
    def all_goes_well_for_a_while(self, followers: set[int]) -> None:
        """Everybody hears of everything, these replicate, and the leader has them in sync."""
        for node_id in NODES:
            self.learns(node_id, 0)
        leader = self.record.leader
        if leader == NOBODY:
            return
        self.appends(leader)
        for follower in sorted(followers) * 3:
            self.fetches(leader, follower, 5)
        for follower in sorted(followers):
            sent = len(self.mail)
            self.proposes(leader, follower)
            if len(self.mail) > sent and follower not in self.record.isr:
                self.is_heard(sent, again=False)
                self.learns(leader, 0)
            if self.record.leader != leader:
                return
        self.commits(leader)

    @rule(leader=SOME_NODE, follower=SOME_NODE)
    def proposes(self, leader: int, follower: int) -> None:
        process = self.nodes[leader]
        if not process.leads or leader == follower:
            return
        if process.pending is not None:
            assert process.proposal is not None
            self.mail.append(process.proposal)
        elif follower in process.record.isr:
            self.mail.append(process.propose(frozenset(process.record.isr) - {follower}))
        elif process.may_join(follower):
            self.mail.append(process.propose(frozenset(process.record.isr) | {follower}))

    @precondition(lambda self: self.mail)
    @rule(number=st.integers(0, 9), again=st.booleans())
    def is_heard(self, number: int, again: bool) -> None:
        number %= len(self.mail)
        request = self.mail[number] if again else self.mail.pop(number)
        with may_be_refused(ErrorCode.stale_broker_epoch):
            decision = alter_partitions(self.image, request)
            self.ask(decision, joined=[member.node_id for member in request.partitions[0].isr])
            (result,) = decision.response.results
            process = self.nodes[request.node_id]
            if result.error_code == ErrorCode.ineligible_replica and process.proposal is request:
                process.pending = process.proposal = None

    @rule(leader=SOME_NODE, follower=SOME_NODE, kept=st.integers(0, 5))
    def is_heard_late(self, leader: int, follower: int, kept: int) -> None:
        """What the leader proposes of a follower is overtaken by its next process."""
        self.fetches(leader, follower, 5)
        sent = len(self.mail)
        self.proposes(leader, follower)
        if len(self.mail) > sent:
            self.crashes(follower, kept)
            self.registers(follower)
            self.is_heard(sent, again=False)

    @rule(gone=st.lists(SOME_NODE, min_size=1, max_size=3, unique=True))
    def several_are_fenced(self, gone: list[int]) -> None:
        for node_id in gone:
            self.fenced(node_id)

    # -- what operators ask for ------------------------------------------------------------------------------------

    def reassign(
        self, replicas: list[int] | None
    ) -> tuple[Decision[pb.AlterPartitionReassignmentsResponse], int]:
        wanted = pb.PartitionReassignment(topic="t", replicas=replicas or (), cancel=replicas is None)
        request = pb.AlterPartitionReassignmentsRequest(
            partitions=[wanted], allow_replication_factor_change=True
        )
        decision = alter_partition_reassignments(self.image, request)
        return decision, decision.response.results[0].error_code

    @rule(replicas=st.lists(SOME_NODE, min_size=1, max_size=3, unique=True))
    def is_reassigned(self, replicas: list[int]) -> None:
        before = self.record
        decision, error = self.reassign(replicas)
        if error:
            assert error == ErrorCode.invalid_replica_assignment
            return
        self.is_asked_to_move = True
        self.ask(decision)
        self.is_asked_to_move = False
        after = self.record
        assert set(after.replicas) - set(after.removing_replicas) == set(replicas)
        assert list(after.replicas)[: len(replicas)] == replicas
        if not self.is_unclean():
            assert set(before.isr) <= set(after.isr) | (set(before.replicas) - set(replicas))
        if not before.adding_replicas and not before.removing_replicas:
            self.wanted = set(before.replicas), replicas
        elif self.wanted is not None and self.wanted[1] != replicas:
            self.wanted = None
        decision, error = self.reassign(replicas)
        assert not error
        assert not decision.records, "asked for twice"

    @rule()
    def is_cancelled(self) -> None:
        before = self.record
        decision, error = self.reassign(None)
        if error:
            return
        self.is_asked_to_move = True
        self.ask(decision)
        self.is_asked_to_move = False
        after = self.record
        assert not after.adding_replicas
        assert not after.removing_replicas
        assert list(after.replicas) == [r for r in before.replicas if r not in before.adding_replicas]
        if self.wanted is not None:
            assert set(after.replicas) == self.wanted[0], "not what there was"
        self.wanted = None

    @rule(unclean=st.booleans())
    def leaders_are_elected(self, unclean: bool) -> None:
        topic = pb.ElectedTopic(name="t", partitions=[0])
        request = pb.ElectLeadersRequest(topics=[topic], election_type=int(unclean))
        self.ask(elect_leaders(self.image, request), may_be_unclean=unclean)

    @rule()
    def leaders_are_elected_unasked(self) -> None:
        self.ask(elect_preferred_leaders(self.image, 10))
        assert not elect_preferred_leaders(self.image, 10).records
        self.do(elect_unclean_leaders(self.image, 10))
        assert not elect_unclean_leaders(self.image, 10).records

    @rule(needed=st.integers(1, 3))
    def another_number_is_needed(self, needed: int) -> None:
        self.set("min.insync.replicas", str(needed))

    @rule(unclean=st.booleans())
    def unclean_elections_are_allowed_or_not(self, unclean: bool) -> None:
        self.set("unclean.leader.election.enable", str(unclean).lower())

    def set(self, name: str, value: str) -> None:
        change = pb.ConfigResourceChange(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            operations=[pb.ConfigOperation(name=name, operation=0, value=value)],
        )
        decision = alter_configs(self.image, pb.IncrementalAlterConfigsRequest(resources=[change]))
        assert not decision.response.results[0].error_code
        self.ask(decision)

    # -- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_record_is_sound(self) -> None:
        if len(self.history) == 1:
            return
        record, able = self.record, self.image.eligible_epochs
        isr, replicas = list(record.isr), list(record.replicas)
        eligible, last = record.eligible_leader_replicas[:], record.last_known_eligible_leader_replicas[:]
        adding, removing, offline = (
            record.adding_replicas[:],
            record.removing_replicas[:],
            record.offline_replicas[:],
        )
        for some in (isr, replicas, eligible, last, adding, removing, offline):
            assert len(set(some)) == len(some)
            assert set(some) <= set(replicas)
        assert not {*isr} & {*eligible}
        assert not {*adding} & {*removing}
        assert set(replicas) - set(removing), "somebody stays"
        assert not {*offline} & {*isr} or len(replicas) == 1
        if record.leader != NOBODY:
            assert record.leader in isr
            assert record.leader not in offline
            assert not last
            needed = int(self.image.topic_config("t")["min.insync.replicas"])
            assert not eligible or len(isr) < min(needed, len(replicas) - len(adding)), "it can be written to"
            return
        candidates = (set(isr) or set(eligible)) - set(offline)
        assert not candidates & able.keys(), "somebody could lead"

    @invariant()
    def who_is_trusted_has_what_was_committed(self) -> None:
        if len(self.history) == 1:
            return
        for node_id in (*self.record.isr, *self.record.eligible_leader_replicas):
            process = self.nodes[node_id]
            if not process.is_dirty:
                assert process.log[: len(self.committed)] == self.committed, f"{node_id} lacks records"

    @invariant()
    def somebody_may_lead_when_he_comes_back(self) -> None:
        if len(self.history) == 1 or self.record.leader != NOBODY or self.is_given_up:
            return
        image, record = self.image, self.record
        if not {*record.isr, *record.eligible_leader_replicas} <= image.nodes.keys():
            return  # one that was forgotten, and is waited for, as in Kafka
        for node_id in record.replicas:
            known = image.nodes.get(node_id)
            if known is None:
                continue
            back = md.NodeRecord(
                node_id=node_id,
                incarnation_id="back",
                address="n",
                log_directory_ids=known.log_directory_ids,
                previous_node_epoch=known.node_epoch,
            )
            image = image.apply(register_node(image, back).records, image.revision + 1)
        found = image.partition(TOPIC_ID, 0)
        assert found is not None
        assert found.leader != NOBODY, "nobody leads it ever again"


TestCommittedIsKept = Cluster.TestCase
TestCommittedIsKept.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
