"""Who a request is from, and whether he may go on."""

from __future__ import annotations

from dataclasses import replace

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    CurrentRecord,
    HeldPartitions,
    MemberRecord,
    TargetRecord,
)
from barnabas.coordinator.groups.consumer.core.tombstones import member_tombstones
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode, KafkaError


def check_room(shard: GroupShard, group: ConsumerGroup, member_id: str) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a newcomer to a full group."""
    size_max = shard.config.group_consumer_max_size
    if member_id not in group.members and len(group.members) >= size_max:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def dynamic_member(group: ConsumerGroup, member_id: str, *, may_be_new: bool) -> Member:
    """The member. Raises UNKNOWN_MEMBER_ID where it is not there and may not be new."""
    member = group.members.get(member_id)
    if member is not None:
        return member
    if not may_be_new:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return Member(member_id)


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where the instance is somebody else by now."""
    if instance_id is None:
        return dynamic_member(group, member_id, may_be_new=False)
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raise FENCED_MEMBER_EPOCH for an epoch that is not the member's.

    0 joins, also a member that is still known. The epoch before is taken where the member has nothing that it would not
    have now: the answer with the new one may have been lost.
    """
    if epoch in (0, member.epoch):
        return
    lost_answer = epoch == member.current.previous_epoch and _is_part(owned, member.current.assigned)
    if epoch > member.epoch or not lost_answer:
        size = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _is_part(owned: Assignment | None, assigned: HeldPartitions) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()
    )


def replaced_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    decision: Decision,
    *,
    is_classic: bool = False,
) -> Member:
    """A static member that joins: new, or in the place of who had its instance id, with what that one had. Whose
    deadlines go on until the join is not refused any more (`take_deadlines_over`).

    Raises UNRELEASED_INSTANCE_ID where that one has not said that it went; members of the classic protocol do not say
    so. INVALID_REQUEST for somebody who is in the group as another already, and would lose what he has there.
    """
    old = group.static_member(instance_id)
    if old is None:
        return dynamic_member(group, member_id, may_be_new=True)
    if not (is_classic or old.is_classic or old.has_left_for_a_while):
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.member_id} member.",
        )
    if member_id != old.member_id and member_id in group.members:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Member {member_id} is in the group already, and cannot take the instance id {instance_id} over.",
        )
    new = Member(member_id, old.metadata, replace(old.current, epoch=0, previous_epoch=0))
    group_id = group.group_id
    decision.records += [
        *member_tombstones(group_id, old.member_id),
        MemberRecord(group_id, member_id, new.metadata),
        TargetRecord(group_id, member_id, group.target_of(old.member_id)),
        CurrentRecord(group_id, member_id, new.current),
    ]
    decision.note(
        "static member replaced",
        group_id=group_id,
        instance_id=instance_id,
        old_member_id=old.member_id,
        member_id=member_id,
    )
    return new
