"""ConsumerGroupDescribe: what an administrator sees of a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.heartbeat import group_of
from barnabas.coordinator.groups.consumer.core.records import without_epochs
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import (
    ClientIdentity,
    ConsumerGroupDescription,
    ConsumerGroupMemberDescription,
    ListedGroup,
    TopicIdPartitions,
)

CONSUMER_TYPE: Final = "consumer"
"""Kafka's name for groups of the protocol with ConsumerGroupHeartbeat, and for what kind of group they are."""

Partitions = dict[bytes, set[int]]


def describe_consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroupDescription:
    """One group; GROUP_ID_NOT_FOUND where there is none of this type."""
    try:
        group = group_of(shard, group_id)
    except KafkaError as error:
        return ConsumerGroupDescription(error_code=error.code, error_message=error.message, group_id=group_id)
    topics = shard.consumers.topics
    assignor = (
        group.assignors.most_common(1)[0][0] if group.assignors else shard.config.group_consumer_assignors[0]
    )
    return ConsumerGroupDescription(
        group_id=group_id,
        state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=assignor,
        members=[_describe_member(group, member, topics) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: Member, topics: Topics) -> ConsumerGroupMemberDescription:
    metadata = member.metadata
    held: Partitions = {}
    for some in (member.current.assigned, member.current.revoking):
        for topic_id, partitions in without_epochs(some).items():
            held.setdefault(topic_id, set()).update(partitions)
    return ConsumerGroupMemberDescription(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.epoch,
        client=ClientIdentity(client_id=metadata.client_id, client_host=metadata.client_host),
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex,
        assignment=_named(held, topics),
        target_assignment=_named(
            {topic_id: set(some) for topic_id, some in group.target_of(member.member_id).items()}, topics
        ),
        is_classic=member.is_classic,
    )


def _named(partitions: Partitions, topics: Topics) -> list[TopicIdPartitions]:
    """Topics that are gone are left out."""
    return [
        TopicIdPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(some))
        for topic_id, some in sorted(partitions.items())
        if (name := topics.name_of(topic_id)) is not None
    ]


def list_consumer_groups(shard: GroupShard, states: Collection[str]) -> Iterator[ListedGroup]:
    """The groups of this type in one of `states`, given in lower case; all where there are none given."""
    for group in shard.consumers.groups.values():
        state = group.state
        if not states or state.lower() in states:
            yield ListedGroup(
                group_id=group.group_id, protocol_type=CONSUMER_TYPE, state=state, type=CONSUMER_TYPE
            )
