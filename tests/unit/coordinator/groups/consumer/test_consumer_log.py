"""A random walk over groups of both protocols, with requests that make no sense among them: after each step the log
says exactly what the coordinator goes by, also once it is compacted, and each deadline is a member's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from migration_driver import MigrationDriver, assignment, subscription

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import decode_batch, encode_record
from barnabas.coordinator.groups.consumer.core.deadlines import CONSUMER_DEADLINES, is_revoking
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup
from barnabas.coordinator.groups.consumer.core.timers import join_of, rebalance_of, session_of, sync_of
from barnabas.coordinator.groups.core.records import GroupLogRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.timers import DeadlineKind
from barnabas.messages import coordinator_pb2 as pb
from barnabas.records.record import encode_batch

GROUP = "g"
members = st.sampled_from(["a", "b", "c", "d", "first classic", "last classic"])
instances = st.sampled_from([None, None, "i", "j"])
subscriptions = st.sampled_from([None, "t", "u", "t u", "v", ""])
expressions = st.sampled_from([None, None, "t.*", "u|v", "(", ""])


class LogMachine(RuleBasedStateMachine):
    """Owns a shard, and what classic members were told last."""

    @initialize(
        policy=st.sampled_from(["bidirectional", "upgrade", "downgrade"]),
        size=st.sampled_from([3, 100]),
        interval=st.sampled_from([0, 1000]),
    )
    def start(self, policy: str, size: int, interval: int) -> None:
        config = CoordinatorConfig(group_consumer_migration_policy=policy, group_consumer_max_size=size)
        self.driver = MigrationDriver(config, interval=interval, t=4, u=3)
        self.generations: dict[str, int] = {}

    def _id(self, member: str) -> str:
        classic = list(self.generations)
        if member == "first classic":
            return classic[0] if classic else "nobody"
        return (classic[-1] if classic else "nobody") if member == "last classic" else member

    @rule(
        member=members,
        topics=subscriptions,
        regex=expressions,
        instance=instances,
        assignor=st.sampled_from([None, "range"]),
        timeout=st.sampled_from([1_000, 60_000]),
    )
    def enters(self, member: str, topics: str | None, regex: str | None, **more: Any) -> None:
        self.driver.enter(self._id(member), topics, regex=regex, **more)

    @rule(
        member=members,
        epoch=st.sampled_from([None, None, 1, 99]),
        topics=subscriptions,
        regex=expressions,
        gives_up=st.booleans(),
        says_instance=st.booleans(),
    )
    def beats(self, member: str, epoch: int | None, gives_up: bool, says_instance: bool, **said: Any) -> None:
        member_id = self._id(member)
        group = self.driver.shard.consumers.get(GROUP)
        if group is None or (epoch is None and self.driver.epochs.get(member_id, 0) <= 0):
            return
        owned = instance = None
        if member_id in group.members:
            if gives_up:
                there = self.driver.has(member_id).items()
                owned = {name: some for name, some in there if name in self.driver.ids}
            if says_instance:
                instance = group.members[member_id].metadata.instance_id
        self.driver.beat(member_id, epoch, owned=owned, instance=instance, **said)

    @rule(member=members, instance=instances, for_a_while=st.booleans())
    def leaves(self, member: str, instance: str | None, for_a_while: bool) -> None:
        epoch = -2 if for_a_while and instance is not None else -1
        self.driver.beat(self._id(member), epoch, instance=instance)

    @rule(
        member=st.sampled_from(["", "a", "first classic", "last classic"]),
        instance=instances,
        protocols=st.sampled_from(["range", "range,other"]),
        metadata=st.sampled_from(
            [subscription("t", "u", owned={"t": [0]}), subscription("t", version=0), b"x"]
        ),
        known=st.booleans(),
        rebalance=st.sampled_from([3_000, 60_000]),
    )
    def joins(self, member: str, **more: Any) -> None:
        waiter = self.driver.join("k", self._id(member), **more)
        reply = self.driver.replies.get(waiter)
        if isinstance(reply, pb.JoinGroupResponse) and reply.member_id:
            self.generations[reply.member_id] = reply.generation_id

    @rule(member=members)
    def asks_for_its_assignment(self, member: str) -> None:
        member_id = self._id(member)
        classic = self.driver.shard.groups.get(GROUP)
        generation = self.generations.get(member_id, 1) if classic is None else classic.generation
        others = {} if classic is None else classic.members
        rows = [
            pb.SyncGroupAssignment(member_id=other, assignment=assignment({"t": [index % 4]}))
            for index, other in enumerate(others)
        ]
        self.driver.call_sync_or_wait(
            pb.SyncGroupRequest(
                group_id=GROUP, generation_id=generation, member_id=member_id, assignments=rows
            )
        )

    @rule(member=members, instance=instances)
    def beats_as_classic_members_do(self, member: str, instance: str | None) -> None:
        member_id = self._id(member)
        self.driver.heartbeat(member_id, self.generations.get(member_id, 1), instance)

    @rule(member=members, instance=instances)
    def leaves_as_classic_members_do(self, member: str, instance: str | None) -> None:
        self.driver.leave(self._id(member), instance=instance)

    @rule(name=st.sampled_from("tuv"))
    def a_topic_comes_or_grows(self, name: str) -> None:
        topic = self.driver.topics.get(name)
        self.driver.create_topic(name, min((0 if topic is None else len(topic.partitions)) + 2, 8))

    @rule(name=st.sampled_from("tuv"))
    def a_topic_goes(self, name: str) -> None:
        if self.driver.topics.get(name) is not None:
            self.driver.delete_topic(name)

    @rule(milliseconds=st.sampled_from([100, 1_000, 3_000, 11_000, 46_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.driver.advance(milliseconds)

    @rule()
    def the_coordinator_dies(self) -> None:
        self.driver.reload()

    @invariant()
    def the_log_says_everything(self) -> None:
        now = facts(self.driver.shard)
        log = [encode_record(record) for record in self.driver.log]
        newest = {key: index for index, (key, _) in enumerate(log)}
        compacted = [log[index] for index in sorted(newest.values())]
        for some in (log, compacted, [(key, value) for key, value in compacted if value is not None]):
            assert facts(self._replayed(some)) == now

    def _replayed(self, log: Iterable[tuple[bytes, bytes | None]]) -> GroupShard:
        shard = self.driver.make_shard()
        rows = [(0, key, value, ()) for key, value in log]
        records: Iterable[GroupLogRecord] = decode_batch(memoryview(encode_batch(rows))) if rows else ()
        for record in records:
            shard.replay(record)
        return shard

    @invariant()
    def every_member_has_its_deadlines_and_nobody_else_has_any(self) -> None:
        shard = self.driver.shard
        for group_id, group in shard.consumers.groups.items():
            for member_id, member in group.members.items():
                assert shard.timers.time_of(session_of(group_id, member_id)) is not None
                rebalance_ms = shard.timers.time_of(rebalance_of(group_id, member_id))
                assert (rebalance_ms is not None) == is_revoking(member)
                if not member.is_classic:
                    assert shard.timers.time_of(join_of(group_id, member_id)) is None
                    assert shard.timers.time_of(sync_of(group_id, member_id)) is None
        for deadline in shard.timers.scheduled():
            if deadline.kind in CONSUMER_DEADLINES - {DeadlineKind.REGEX}:
                assert deadline.member_id in shard.consumers.groups[deadline.group_id].members

    @invariant()
    def what_is_counted_is_there(self) -> None:
        for group in self.driver.shard.consumers.groups.values():
            assert group.targets.keys() <= group.members.keys()
            assert set(group.static_members.values()) <= group.members.keys()
            assert group.resolved.keys() <= group.regexes.keys()
            if group.members and not group.needs_refresh and group.resolved.keys() == group.regexes.keys():
                assert group.metadata_hash == self.driver.topics.hash_of(group.subscribed_topics())


def facts(shard: GroupShard) -> Any:
    """What the log says."""
    return {group.group_id: group_facts(group) for group in shard.consumers.groups.values()}, shard.stored


def group_facts(group: ConsumerGroup) -> Any:
    topics = {topic_id for member in group.members.values() for topic_id in member.current.assigned}
    return (
        (group.epoch, group.metadata_hash, group.target_epoch, group.targets, group.members, group.resolved),
        (group.static_members, group.topic_names, group.regexes, group.assignors),
        (group.classic_protocols, group.classic_count),
        {(topic, index): group.holder_of(topic, index) for topic in topics for index in range(8)},
    )


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
