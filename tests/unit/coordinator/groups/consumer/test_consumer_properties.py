"""A random walk over consumer groups: whatever members do, and whenever the coordinator dies, no partition has two
readers, the log says everything, and members that behave get to rest with everything assigned."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from migration_driver import MigrationDriver, subscription

from barnabas.messages import coordinator_pb2 as pb

MEMBERS = ("m0", "m1", "m2", "m3")
STATIC = ("s0", "s1")
TOPICS = ("t", "u", "v")
GROUP = "g"


class GroupMachine(RuleBasedStateMachine):
    """Owns a shard and what each member believes that it has: a client that reads what it was given until it is told
    otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = MigrationDriver(t=4, u=3)
        self.believed: dict[str, dict[str, list[int]]] = {}
        self.subscribed: dict[str, str] = {}

    @initialize(interval=st.sampled_from([0, 1000]))
    def choose(self, interval: int) -> None:
        self.driver.set_times(assignment_interval_ms=interval)

    def _take(self, member: str, reply: Any) -> None:
        if reply.error_code:
            self._forget(member)
        elif reply.HasField("assignment"):
            names = {topic_id: name for name, topic_id in self.driver.ids.items()}
            self.believed[member] = {
                names[topic.topic_id]: list(topic.partitions)
                for topic in reply.assignment.topics
                if topic.topic_id in names
            }

    def _forget(self, member: str) -> None:
        """What a client does that is fenced: it gives up everything."""
        self.believed.pop(member, None)
        self.driver.epochs.pop(member, None)

    @rule(member=st.sampled_from(MEMBERS), topics=st.sampled_from(["t", "t u", "u v", ""]))
    def enters(self, member: str, topics: str) -> None:
        self._forget(member)
        self.subscribed[member] = topics
        self._take(member, self.driver.enter(member, topics))

    @rule(instance=st.sampled_from(STATIC), member=st.sampled_from(["x", "y"]))
    def enters_as_instance(self, instance: str, member: str) -> None:
        member_id = f"{instance}-{member}"
        reply = self.driver.enter(member_id, "t u", instance=instance)
        if not reply.error_code:
            for other in [known for known in self.believed if known.startswith(instance)]:
                self._forget(other)
            self.driver.epochs[member_id] = reply.member_epoch
            self._take(member_id, reply)

    @rule(member=st.sampled_from((*MEMBERS, "s0-x", "s0-y", "s1-x")), says=st.booleans())
    def beats(self, member: str, says: bool) -> None:
        if member not in self.believed:
            return
        owned = self.believed[member] if says else None
        instance = member.partition("-")[0] if "-" in member else None
        known = {name: parts for name, parts in (owned or {}).items() if name in self.driver.ids}
        self._take(
            member, self.driver.beat(member, owned=None if owned is None else known, instance=instance)
        )

    @rule(member=st.sampled_from(MEMBERS), topics=st.sampled_from(["t", "v", "t u v"]))
    def changes_its_mind(self, member: str, topics: str) -> None:
        if member in self.believed:
            self._take(member, self.driver.beat(member, topics=topics))

    @rule(member=st.sampled_from(MEMBERS))
    def leaves(self, member: str) -> None:
        if member in self.believed:
            self.driver.beat(member, -1)
            self._forget(member)

    @rule(instance=st.sampled_from(STATIC))
    def goes_for_a_while(self, instance: str) -> None:
        for member in [known for known in self.believed if known.startswith(instance)]:
            self.driver.beat(member, -2, instance=instance)
            self._forget(member)

    @rule(milliseconds=st.sampled_from([100, 1000, 20_000, 46_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.driver.advance(milliseconds)

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def a_topic_comes_or_grows(self, name: str, more: int) -> None:
        topic = self.driver.topics.get(name)
        count = 0 if topic is None else len(topic.partitions)
        if count + more <= 8:
            self.driver.create_topic(name, count + more)

    @rule(name=st.sampled_from(TOPICS))
    def a_topic_goes(self, name: str) -> None:
        if self.driver.topics.get(name) is not None:
            self.driver.delete_topic(name)

    @rule()
    def the_coordinator_dies(self) -> None:
        before = self._described()
        self.driver.reload()
        assert self._described() == before

    @rule(client=st.sampled_from(["k0", "k1"]))
    def a_classic_member_joins(self, client: str) -> None:
        group = self.driver.shard.consumers.get(GROUP)
        if group is None or not group.members:
            return
        waiter = self.driver.join(
            client, self.driver.last_ids.get(client, ""), known=False, metadata=subscription("t", version=0)
        )
        reply = self.driver.replies[waiter]
        assert isinstance(reply, pb.JoinGroupResponse)
        if not reply.error_code:
            self.driver.last_ids[client] = reply.member_id
            self.driver.synced(reply.member_id, reply.generation_id)

    def _described(self) -> Any:
        described = self.driver.description()
        members = sorted(described.members, key=lambda member: member.member_id)
        return described.group_epoch, described.assignment_epoch, described.state, members

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        if self.driver.description().error_code:
            return
        self.driver.holders()
        group = self.driver.shard.consumers.groups[GROUP]
        for member_id, member in group.members.items():
            for topic_id, partitions in member.current.assigned.items():
                assert all(group.holder_of(topic_id, partition) == member_id for partition in partitions)

    @invariant()
    def believers_are_few(self) -> None:
        """What clients read goes by their sessions too: who was silent for longer believes nothing any more."""
        group = self.driver.shard.consumers.get(GROUP)
        for member in list(self.believed):
            if group is None or member not in group.members:
                self._forget(member)
        seen: set[tuple[str, int]] = set()
        for topics in self.believed.values():
            for name, partitions in topics.items():
                for partition in partitions:
                    assert (name, partition) not in seen
                    seen.add((name, partition))
            # A topic of the same name may have come again since: what is believed of the old one is none of it.
        self._drop_what_is_gone()

    def _drop_what_is_gone(self) -> None:
        for topics in self.believed.values():
            for name in list(topics):
                if name not in self.driver.ids:
                    del topics[name]

    def teardown(self) -> None:
        """Members that are left and behave get to rest."""
        group = self.driver.shard.consumers.get(GROUP)
        if group is None:
            return
        self.driver.set_times(assignment_interval_ms=0)
        self.driver.advance(300_000)  # who is away, or does not behave, is out
        for number in range(2):
            self.driver.enter(f"last{number}", "t u v")
        if self.driver.description().error_code:
            return
        self.driver.settle("last0", "last1", rounds=20)
        there = sum(len(topic.partitions) for name in TOPICS if (topic := self.driver.topics.get(name)))
        assert len(self.driver.holders()) == there
        assert self.driver.state() == "Stable"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
