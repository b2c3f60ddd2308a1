"""Drives a shard's consumer groups: heartbeats in, and a trace of what members are told and what the log gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordinator_driver import GROUP, ShardDriver

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.describe import describe_consumer_group
from barnabas.coordinator.groups.consumer.core.groups import ConsumerGroups, GroupTimes
from barnabas.coordinator.groups.consumer.core.heartbeat import handle_consumer_heartbeat
from barnabas.coordinator.groups.consumer.core.records import (
    CurrentRecord,
    GroupEpochRecord,
    HeldPartitions,
    MemberRecord,
    RegexRecord,
    SubscriptionMetadataRecord,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.core.records import GroupLogRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import MetadataImage, node_key, partition_key, topic_key

Owned = Mapping[str, Iterable[int]]


class ConsumerDriver(ShardDriver):
    """A shard, its topics, and members that are named by their ids. `interval` is the assignment interval in ms."""

    def __init__(self, config: CoordinatorConfig | None = None, *, interval: int = 0, **topics: int) -> None:
        self.topics = Topics()
        self.times = GroupTimes(assignment_interval_ms=interval)
        self.ids: dict[str, bytes] = {}
        self.epochs: dict[str, int] = {}
        self._revision = 0
        self._ids_made = 0
        super().__init__(config)
        for name, partitions in topics.items():
            self.create_topic(name, partitions)

    def make_shard(self) -> GroupShard:
        return GroupShard(self.config, ConsumerGroups(self.topics, lambda _: self.times))

    # -- metadata -----------------------------------------------------------------------------------------------

    def apply(self, *records: MetadataRecord) -> None:
        self._revision += 1
        image = self.topics.image if self.topics.image.revision else MetadataImage()
        changed = self.topics.on_image(image.apply(records, self._revision))
        self.shard.consumers.on_topics_changed(changed)

    def create_topic(self, name: str, partitions: int, topic_id: bytes = b"", replica: int = 1) -> None:
        """Create a topic, or give it so many partitions."""
        if name not in self.ids:
            self._ids_made += 1
            self.ids[name] = topic_id or bytes([self._ids_made]) * 16
        first = self.partition_count(name)
        self.apply(
            MetadataRecord(
                key=topic_key(name),
                topic=TopicRecord(name=name, topic_id=self.ids[name], partition_count=partitions),
            ),
            *(self._partition(name, index, replica) for index in range(first, partitions)),
        )

    def create_topics(self, *names: str) -> None:
        """Create topics without partitions, at once."""
        first = len(self.ids) + 1_000
        self.ids |= {name: number.to_bytes(16, "big") for number, name in enumerate(names, first)}
        self.apply(
            *(
                MetadataRecord(key=topic_key(name), topic=TopicRecord(name=name, topic_id=self.ids[name]))
                for name in names
            )
        )

    def move(self, name: str, index: int, replica: int, epoch: int = 0) -> None:
        self.apply(self._partition(name, index, replica, epoch))

    def _partition(self, name: str, index: int, replica: int, epoch: int = 0) -> MetadataRecord:
        record = PartitionRecord(
            topic_id=self.ids[name], partition=index, leader=replica, leader_epoch=epoch, replicas=[replica]
        )
        return MetadataRecord(key=partition_key(self.ids[name], index), partition=record)

    def put_node(self, node_id: int, rack: str) -> None:
        self.apply(MetadataRecord(key=node_key(node_id), node=NodeRecord(node_id=node_id, rack=rack)))

    def delete_topic(self, name: str) -> None:
        topic = self.topics.get(name)
        assert topic is not None
        self._revision += 1
        self.apply(
            MetadataRecord(key=topic_key(name)),
            *(
                MetadataRecord(key=partition_key(topic.topic_id, index))
                for index in range(len(topic.partitions))
            ),
        )
        del self.ids[name]

    # -- requests -----------------------------------------------------------------------------------------------

    def beat(
        self,
        member: str,
        epoch: int | None = None,
        *,
        topics: str | None = None,
        regex: str | None = None,
        owned: Owned | None = None,
        instance: str | None = None,
        rack: str | None = None,
        timeout: int = -1,
        assignor: str | None = None,
        group: str = GROUP,
    ) -> pb.ConsumerGroupHeartbeatResponse:
        """One heartbeat, by default with the epoch that the member was told last."""
        request = pb.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=timeout,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            client=pb.ClientIdentity(client_id="c", client_host="/h"),
        )
        if topics is not None:
            request.subscribed_topic_names.names.extend(topics.split())
            request.subscribed_topic_names.SetInParent()
        if owned is not None:
            request.topic_partitions.SetInParent()
            for name, partitions in owned.items():
                request.topic_partitions.topics.add(topic_id=self.ids[name], partitions=partitions)
        waiter = self.call(member, handle_consumer_heartbeat, request)
        reply = self.replies[waiter]
        assert isinstance(reply, pb.ConsumerGroupHeartbeatResponse)
        if not reply.error_code:
            self.epochs[reply.member_id] = reply.member_epoch
        return reply

    def enter(
        self, member: str, topics: str | None = "t", **more: object
    ) -> pb.ConsumerGroupHeartbeatResponse:
        """A full first heartbeat."""
        more = {"timeout": 60_000, "owned": {}} | more
        return self.beat(member, 0, topics=topics, **more)  # type: ignore[arg-type]

    def settle(self, *members: str, rounds: int = 10) -> None:
        """Have the members send heartbeats, giving up at once what they are asked to, until nothing happens."""
        for _ in range(rounds):
            before = len(self.log)
            for member in members:
                self.beat(member, owned=self.has(member))
            if len(self.log) == before:
                return
        raise AssertionError("the group does not settle")

    # -- looking ------------------------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        there = self.topics.get(topic)
        return 0 if there is None else len(there.partitions)

    def has(self, member: str, group: str = GROUP) -> dict[str, list[int]]:
        """What the member is assigned, by the log."""
        current = self.shard.consumers.groups[group].members[member].current
        return self._named(current.assigned)

    def description(self, group: str = GROUP) -> pb.ConsumerGroupDescription:
        return describe_consumer_group(self.shard, group)

    def state(self, group: str = GROUP) -> str:
        return self.description(group).state

    def holders(self, group: str = GROUP) -> dict[tuple[str, int], str]:
        """Who may be reading each partition; nobody shares one."""
        found: dict[tuple[str, int], str] = {}
        for member in self.description(group).members:
            for topic in member.assignment:
                for partition in topic.partitions:
                    key = (topic.topic_name, partition)
                    assert key not in found, f"{key} is {found[key]}'s and {member.member_id}'s"
                    found[key] = member.member_id
        return found

    def set_times(self, **times: int) -> None:
        self.times = replace(self.times, **times)

    def _named(self, held: HeldPartitions | Mapping[bytes, Iterable[int]]) -> dict[str, list[int]]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {names.get(topic_id, topic_id.hex()): sorted(some) for topic_id, some in held.items()}

    def _shown(self, held: HeldPartitions | Mapping[bytes, Iterable[int]]) -> str:
        return " ".join(
            f"{name}{','.join(map(str, some))}" for name, some in sorted(self._named(held).items())
        )

    def show_record(self, record: GroupLogRecord) -> str:
        match record:
            case GroupEpochRecord():
                return f"epoch {record.value.epoch}" if record.value else "epoch gone"
            case SubscriptionMetadataRecord():
                return "topics gone"
            case MemberRecord():
                if record.value is None:
                    return f"member {record.member_id} gone"
                return f"member {record.member_id}" + (" classic" if record.value.classic else "")
            case TargetEpochRecord():
                return f"target {record.value.epoch}" if record.value else "target gone"
            case TargetRecord():
                value = "gone" if record.value is None else f"[{self._shown(record.value)}]"
                return f"target {record.member_id} {value}"
            case CurrentRecord():
                if record.value is None:
                    return f"current {record.member_id} gone"
                value = record.value
                state = value.state.name.partition("_")[0].lower()
                revoking = f" -[{self._shown(value.revoking)}]" if value.revoking else ""
                return f"current {record.member_id} {value.epoch} {state} [{self._shown(value.assigned)}]{revoking}"
            case RegexRecord():
                topics = "gone" if record.value is None else ",".join(sorted(record.value.topics))
                return f"regex {record.regex} {topics}"
            case _:
                return super().show_record(record)

    def show(self, message: object) -> str:
        if not isinstance(message, pb.ConsumerGroupHeartbeatResponse):
            return super().show(message)
        if message.error_code:
            return ErrorCode(message.error_code).name.upper()
        text = f"epoch {message.member_epoch}"
        if message.HasField("assignment"):
            assigned = {topic.topic_id: topic.partitions for topic in message.assignment.topics}
            text += f" [{self._shown(assigned)}]"
        return text
