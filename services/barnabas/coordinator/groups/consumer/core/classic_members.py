"""Members that speak the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup
(KIP-848).

To them the group is one whose leader is always somebody else: joining is answered at once, with the member's epoch as
the generation, and what the group's assignor gave them comes with SyncGroup. They learn of every step that they have
to take, giving partitions up or taking those that have become free, by REBALANCE_IN_PROGRESS, and take it by joining
again.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.coordinator.groups.consumer.core.conversion import (
    CONSUMER_PROTOCOL_TYPE,
    downgrade,
    may_downgrade,
    named_partitions,
)
from barnabas.coordinator.groups.consumer.core.embedded import (
    Malformed,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from barnabas.coordinator.groups.consumer.core.fencing import fence_members
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.members import (
    check_room,
    dynamic_member,
    known_member,
    replaced_member,
)
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    ClassicMetadata,
    MemberMetadata,
    MemberState,
    without_epochs,
)
from barnabas.coordinator.groups.consumer.core.steps import (
    last_target,
    reconcile,
    update_member,
    update_subscription,
)
from barnabas.coordinator.groups.consumer.core.timers import (
    join_of,
    rebalance_timeout_ms,
    start_session,
    sync_of,
    take_deadlines_over,
)
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.core.answers import join_error, refuse_heartbeat, sync_error
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

# -- joining --------------------------------------------------------------------------------------------------


def join_consumer_group(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, waiter: Waiter, decision: Decision
) -> None:
    """JoinGroup of a group with members."""
    try:
        response = _join(shard, group, request, decision)
    except KafkaError as error:
        decision.forget()
        decision.refuse(waiter, error.code, join_error(error.code))
    else:
        # MEMBER_ID_REQUIRED, with an id, is no error of this kind.
        code = ErrorCode(response.error_code)
        if code is ErrorCode.none:
            decision.reply(waiter, response)
        else:
            decision.refuse(waiter, code, response)


def _join(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, decision: Decision
) -> JoinGroupResponse:
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    member_id = request.member_id or str(decision.draw_id())
    _check_may_join(shard, group, member_id, request)
    if not request.member_id and instance_id is None and request.require_known_member_id:
        return join_error(ErrorCode.member_id_required, member_id)
    subscription = _subscription(request)
    owned = _owned(subscription, shard.consumers.topics)
    old = None if instance_id is None else group.static_member(instance_id)
    if instance_id is None:
        before = dynamic_member(group, member_id, may_be_new=True)
    elif request.member_id:
        before = known_member(group, member_id, instance_id)
    else:
        before = replaced_member(group, member_id, instance_id, decision, is_classic=True)
    after = replace(before, metadata=_metadata(before.metadata, request, subscription))
    is_last = old is not None and not old.is_classic and may_downgrade(shard, group, (old,), added=1)
    if is_last and old is not None:
        joined = _join_as_last(shard, group, old, before, after, owned, decision)
    else:
        joined = _join_and_stay(shard, group, before, after, owned, decision)
    return JoinGroupResponse(
        generation_id=joined.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )


def _check_may_join(
    shard: GroupShard, group: ConsumerGroup, member_id: str, request: JoinGroupRequest
) -> None:
    if shard.config.group_consumer_migration_policy.lower() == "disabled":
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol,
            "the group migration is disabled: only new members may join",
        )
    check_room(shard, group, member_id)
    names = [protocol.name for protocol in request.protocols]
    if not group.supports_classic(request.protocol_type, names):
        raise KafkaError(
            ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported."
        )


def _subscription(request: JoinGroupRequest) -> Subscription:
    """All of a consumer's protocols say the same; the first one is read."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except Malformed as error:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from error


def _owned(subscription: Subscription, topics: Topics) -> Assignment:
    found = ((topics.get(name), partitions) for name, partitions in subscription.owned.items())
    return {topic.topic_id: partitions for topic, partitions in found if topic is not None}


def _metadata(
    before: MemberMetadata, request: JoinGroupRequest, subscription: Subscription
) -> MemberMetadata:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    return replace(
        before,
        instance_id=request.group_instance_id
        if request.HasField("group_instance_id")
        else before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=request.client.client_id,
        client_host=request.client.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )


def _join_and_stay(
    shard: GroupShard,
    group: ConsumerGroup,
    before: Member,
    after: Member,
    owned: Assignment,
    decision: Decision,
) -> Member:
    joined = update_member(shard, group, before, after, owned, decision)
    group_id, member_id = group.group_id, joined.member_id
    take_deadlines_over(shard, group, joined)
    shard.timers.cancel(join_of(group_id, member_id))
    start_session(shard, group_id, joined, decision)
    at_ms = decision.monotonic_ms + rebalance_timeout_ms(joined)
    shard.timers.schedule(sync_of(group_id, member_id), at_ms)
    return joined


def _join_as_last(
    shard: GroupShard,
    group: ConsumerGroup,
    old: Member,
    before: Member,
    after: Member,
    owned: Assignment,
    decision: Decision,
) -> Member:
    """A static member comes back with the classic protocol, and no other speaks the newer one: it is a classic group
    from now on. There is no rebalance where the target is still right and the others have all of theirs. Where they
    have not, Kafka asks for none either, and tells the member that it has what another one has still to give up."""
    epoch, has_changed = update_subscription(shard, group, before, after, decision)
    target_epoch = group.target_epoch.epoch
    is_stale = target_epoch < epoch
    others = (member for member in group.members.values() if member is not old)
    are_settled = all(member.is_reconciled_to(target_epoch) for member in others)
    target = last_target(group, after)
    if not is_stale:
        after = reconcile(shard, group, after, target_epoch, target, has_changed, owned, decision)
    decision.records.clear()  # the group's records all go; what was to be written of it need not be
    members = [
        (after, target) if member is old else (member, group.target_of(member.member_id))
        for member in group.members.values()
    ]
    reason = ""
    if is_stale or not are_settled:
        what = "with a stale assignment" if is_stale else "that was being rebalanced"
        reason = f"it was a consumer group {what}"
    if not downgrade(shard, group, members, decision, reason):
        raise KafkaError(ErrorCode.group_id_not_found, "the group cannot become a classic one")
    return after


# -- what follows ---------------------------------------------------------------------------------------------


def _classic_member(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> Member:
    """Who asks, in the generation that he says. Raises KafkaError."""
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    member = known_member(group, request.member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member.member_id} does not use the classic protocol."
        )
    if request.generation_id != member.epoch:
        raise KafkaError(ErrorCode.illegal_generation, f"the member's epoch is {member.epoch}")
    return member


def sync_consumer_group(
    shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest, waiter: Waiter, decision: Decision
) -> None:
    """SyncGroup: what the member has now."""
    try:
        response = _sync(shard, group, request, decision)
    except KafkaError as error:
        decision.refuse(waiter, error.code, sync_error(error.code))
    else:
        decision.reply(waiter, response)


def _sync(
    shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest, decision: Decision
) -> SyncGroupResponse:
    member = _classic_member(group, request)
    assert member.metadata.classic is not None, "that has been checked"
    name, subscription = member.metadata.classic.protocols[0]
    # KIP-559: only what the client says is held against it.
    if (request.HasField("protocol_type") and request.protocol_type != CONSUMER_PROTOCOL_TYPE) or (
        request.HasField("protocol_name") and request.protocol_name != name
    ):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.target_epoch.epoch > member.epoch and not is_revoking:
        _ask_to_join(shard, group, member, decision)
        raise KafkaError(ErrorCode.rebalance_in_progress)
    try:
        version = version_of(subscription)
    except Malformed as error:
        # Of a member from when the group was a classic one, where nobody had to read its first protocol.
        raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from error
    shard.timers.cancel(sync_of(group.group_id, member.member_id))
    start_session(shard, group.group_id, member, decision)
    partitions = named_partitions(without_epochs(member.current.assigned), shard.consumers.topics)
    return SyncGroupResponse(
        protocol_type=request.protocol_type if request.HasField("protocol_type") else None,
        protocol_name=request.protocol_name if request.HasField("protocol_name") else None,
        assignment=write_assignment(partitions, version),
    )


def _ask_to_join(shard: GroupShard, group: ConsumerGroup, member: Member, decision: Decision) -> None:
    """The member is told that there is a rebalance; from the first time on it has its rebalance timeout to join."""
    deadline = join_of(group.group_id, member.member_id)
    if shard.timers.time_of(deadline) is None:
        shard.timers.schedule(deadline, decision.monotonic_ms + rebalance_timeout_ms(member))


def heartbeat_in_consumer_group(
    shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest, waiter: Waiter, decision: Decision
) -> None:
    """Heartbeat: REBALANCE_IN_PROGRESS where joining again would bring the member a step on."""
    code = ErrorCode.none
    try:
        member = _classic_member(group, request)
        start_session(shard, group.group_id, member, decision)
        state = member.current.state
        is_free = state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
        if member.epoch < group.target_epoch.epoch or state is MemberState.UNREVOKED_PARTITIONS or is_free:
            _ask_to_join(shard, group, member, decision)
            code = ErrorCode.rebalance_in_progress
    except KafkaError as error:
        refuse_heartbeat(error.code, waiter, decision)
    else:
        decision.reply_unproven(waiter, HeartbeatResponse(error_code=code))


def leave_consumer_group(
    shard: GroupShard, group: ConsumerGroup, request: LeaveGroupRequest, waiter: Waiter, decision: Decision
) -> None:
    """LeaveGroup: takes out whoever is named, of either protocol."""
    leaving: dict[str, Member] = {}
    left = []
    for row in request.members:
        code = ErrorCode.none
        try:
            member = _leaving_member(group, row)
            leaving[member.member_id] = member
        except KafkaError as error:
            code = error.code
        instance_id = row.group_instance_id if row.HasField("group_instance_id") else None
        left.append(LeftMember(member_id=row.member_id, group_instance_id=instance_id, error_code=code))
    if leaving:
        decision.note("members left", group_id=group.group_id, members=list(leaving))
    fence_members(shard, group, list(leaving.values()), decision)
    decision.reply(waiter, LeaveGroupResponse(members=left))


def _leaving_member(group: ConsumerGroup, row: LeavingMember) -> Member:
    instance_id = row.group_instance_id if row.HasField("group_instance_id") else None
    if instance_id is not None and not row.member_id:
        # An administrator names the instance only.
        known = group.static_member(instance_id)
        if known is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        return known
    return known_member(group, row.member_id, instance_id)
