"""ConsumerGroupHeartbeat: a member joins, stays, changes its mind, or leaves (KIP-848).

One heartbeat goes through these steps, each of which adds its records to the decision and works on what the steps
before it made of the member: who it is; what it says of itself; whether the group's epoch rises; whether there is a
new target; one step towards it. A heartbeat that brings nothing new looks at the member alone, however large the
group is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from barnabas.coordinator.groups.consumer.core.conversion import dissolve, group_to_join
from barnabas.coordinator.groups.consumer.core.deadlines import spare_member
from barnabas.coordinator.groups.consumer.core.fencing import fence_members
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.members import (
    check_epoch,
    check_room,
    dynamic_member,
    known_member,
    replaced_member,
)
from barnabas.coordinator.groups.consumer.core.records import (
    LEFT_FOR_A_WHILE,
    NO_TIMEOUT,
    Assignment,
    CurrentAssignment,
    CurrentRecord,
    MemberMetadata,
)
from barnabas.coordinator.groups.consumer.core.steps import update_member
from barnabas.coordinator.groups.consumer.core.timers import (
    rebalance_of,
    start_session,
    take_deadlines_over,
)
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
    TopicIdPartitions,
)

JOINS: Final = 0


def handle_consumer_heartbeat(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, waiter: Waiter, decision: Decision
) -> None:
    """Answer one heartbeat. What does not depend on the group has been checked."""
    try:
        answer = _leave if request.member_epoch < JOINS else _stay
        response = answer(shard, request, decision)
    except KafkaError as error:
        decision.forget()
        decision.refuse(waiter, error.code, refused_heartbeat(error))
    else:
        # Who comes, goes, or is told what he may read hears it of the owner.
        is_short = request.member_epoch > JOINS and not response.HasField("assignment")
        say = decision.reply_unproven if is_short else decision.reply
        say(waiter, response)


def spare_who_is_heard(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, decision: Decision) -> None:
    """The member has been heard, though nothing is decided of what it says: it is not out for that meanwhile."""
    group = shard.consumers.get(request.group_id)
    if group is None or request.member_epoch <= JOINS:
        return
    instance_id = request.instance_id if request.HasField("instance_id") else None
    try:
        member = known_member(group, request.member_id, instance_id)
        check_epoch(member, request.member_epoch, _owned(request))
    except KafkaError:
        return
    start_session(shard, group.group_id, member, decision)
    spare_member(shard, group, member.member_id, decision)


def refused_heartbeat(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    """Nothing was done."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def group_of(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """The consumer group. Raises KafkaError GROUP_ID_NOT_FOUND where there is none of this type."""
    group = shard.consumers.get(group_id)
    if group is not None:
        return group
    if group_id in shard.groups:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
    raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")


# -- leaving -------------------------------------------------------------------------------------------------


def _leave(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, decision: Decision
) -> ConsumerGroupHeartbeatResponse:
    group = group_of(shard, request.group_id)
    instance_id = request.instance_id if request.HasField("instance_id") else None
    member = known_member(group, request.member_id, instance_id)
    if instance_id is not None and request.member_epoch == LEFT_FOR_A_WHILE:
        _leave_for_a_while(shard, group, member, decision)
    else:
        decision.note("member left", group_id=group.group_id, member_id=member.member_id)
        fence_members(shard, group, [member], decision)
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _leave_for_a_while(shard: GroupShard, group: ConsumerGroup, member: Member, decision: Decision) -> None:
    """The member's session goes on: until it ends, the instance can come back to what it had. Then its partitions count
    as given to it in epoch 0."""
    held = {
        topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.current.assigned.items()
    }
    away = replace(member.current, epoch=LEFT_FOR_A_WHILE, assigned=held, revoking={})
    decision.records.append(CurrentRecord(group.group_id, member.member_id, away))
    shard.timers.cancel(rebalance_of(group.group_id, member.member_id))
    decision.note("static member left for a while", group_id=group.group_id, member_id=member.member_id)


# -- staying -------------------------------------------------------------------------------------------------


def _stay(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, decision: Decision
) -> ConsumerGroupHeartbeatResponse:
    joins = request.member_epoch == JOINS
    group = group_to_join(shard, request.group_id, decision) if joins else group_of(shard, request.group_id)
    member_id = request.member_id or str(decision.draw_id())
    check_room(shard, group, member_id)
    owned = _owned(request)
    if not request.HasField("instance_id"):
        before = dynamic_member(group, member_id, may_be_new=joins)
        check_epoch(before, request.member_epoch, owned)
    elif joins:
        before = replaced_member(group, member_id, request.instance_id, decision)
    else:
        before = known_member(group, member_id, request.instance_id)
        check_epoch(before, request.member_epoch, owned)
    after = replace(before, metadata=_metadata(before.metadata, request))
    after = update_member(shard, group, before, after, owned, decision)
    classic = shard.groups.get(group.group_id)
    if classic is not None:
        dissolve(shard, classic, group, decision)
    take_deadlines_over(shard, group, after)
    start_session(shard, group.group_id, after, decision)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=shard.consumers.times_of(group.group_id).heartbeat_interval_ms,
    )
    if joins or _says_all(request) or before.current.assigned != after.current.assigned:
        response.assignment.CopyFrom(_answered(after.current))
    return response


def _metadata(before: MemberMetadata, request: ConsumerGroupHeartbeatRequest) -> MemberMetadata:
    """What the member says of itself: what is absent is as it was."""
    has = request.HasField
    names = before.topic_names
    if has("subscribed_topic_names"):
        names = frozenset(request.subscribed_topic_names.names)
    timeout_ms = request.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=request.instance_id if has("instance_id") else before.instance_id,
        rack_id=request.rack_id if has("rack_id") else before.rack_id,
        client_id=request.client.client_id,
        client_host=request.client.client_host,
        topic_names=names,
        topic_regex=request.subscribed_topic_regex if has("subscribed_topic_regex") else before.topic_regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
        server_assignor=request.server_assignor if has("server_assignor") else before.server_assignor,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if not request.HasField("topic_partitions"):
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions.topics}


def _says_all(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it is a full request, as clients send after an error."""
    has_subscription = request.HasField("subscribed_topic_names") or request.HasField(
        "subscribed_topic_regex"
    )
    return (
        request.rebalance_timeout_ms != NO_TIMEOUT
        and has_subscription
        and request.HasField("topic_partitions")
    )


def _answered(current: CurrentAssignment) -> OwnedPartitions:
    return OwnedPartitions(
        topics=[
            TopicIdPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(current.assigned.items())
        ]
    )
