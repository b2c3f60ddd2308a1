"""DescribeGroups and ListGroups: what an administrator sees."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barnabas.coordinator.groups.consumer.core.describe import CONSUMER_TYPE, list_consumer_groups
from barnabas.coordinator.groups.core.group import Group, Member
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    ClientIdentity,
    GroupDescription,
    GroupMemberDescription,
    ListedGroup,
)

CLASSIC_TYPE = "classic"
"""Kafka's name for groups of the protocol with JoinGroup and SyncGroup (KIP-848)."""


def describe_group(shard: GroupShard, group_id: str) -> GroupDescription:
    """One group; GROUP_ID_NOT_FOUND and the state Dead when there is none (KIP-1043)."""
    group = shard.groups.get(group_id)
    if group is None:
        wrong = "is not a classic group" if group_id in shard.consumers else "not found"
        return GroupDescription(
            error_code=ErrorCode.group_id_not_found,
            error_message=f"Group {group_id} {wrong}.",
            group_id=group_id,
            state=GroupState.DEAD,
        )
    stable = group.state is GroupState.STABLE
    return GroupDescription(
        group_id=group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if stable else "",
        members=[_describe_member(group, member, stable) for member in group.members.values()],
    )


def _describe_member(group: Group, member: Member, stable: bool) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client=ClientIdentity(client_id=member.client_id, client_host=member.client_host),
        # Which of its subscriptions counts is settled only once the generation is.
        metadata=member.metadata_for(group.protocol) if stable else b"",
        assignment=member.assignment,
    )


def list_groups(shard: GroupShard, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup]:
    """The groups in one of `states` and of one of `types`, both in lower case; all where empty."""
    if not types or CLASSIC_TYPE in types:
        for group in shard.groups.values():
            if not states or group.state.lower() in states:
                yield ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    state=group.state,
                    type=CLASSIC_TYPE,
                )
    if not types or CONSUMER_TYPE in types:
        yield from list_consumer_groups(shard, states)
