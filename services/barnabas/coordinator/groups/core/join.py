"""JoinGroup: a member asks to be in the next generation."""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.classic_members import join_consumer_group
from barnabas.coordinator.groups.consumer.core.tombstones import group_tombstones
from barnabas.coordinator.groups.core.answers import join_error, joined
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group, Member, protocol_names
from barnabas.coordinator.groups.core.join_static import join_known_instance
from barnabas.coordinator.groups.core.rebalance import rebalance_or_complete, remove_member
from barnabas.coordinator.groups.core.shard import GroupShard, session_of
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.groups.core.waiting import park_join, protocols_of
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import JoinGroupRequest


def handle_join(shard: GroupShard, request: JoinGroupRequest, waiter: Waiter, decision: Decision) -> None:
    """Admit, refuse, or park the caller until the rebalance is complete. The group's id has been checked."""
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None and consumer_group.members:
        join_consumer_group(shard, consumer_group, request, waiter, decision)
        return
    member_id = request.member_id
    group = shard.groups.get(request.group_id)
    if group is None:
        if member_id:
            code = ErrorCode.unknown_member_id
            decision.refuse(waiter, code, join_error(code, member_id))
            return
        group = Group(request.group_id, state_timestamp_ms=decision.now_ms)
    if not _has_room(shard, group, member_id):
        if member_id in group.members:
            remove_member(shard, group, member_id, decision)
        group.pending_members.discard(member_id)
        code = ErrorCode.group_max_size_reached
        decision.refuse(waiter, code, join_error(code))
    elif not group.supports(request.protocol_type, protocol_names(protocols_of(request))):
        code = ErrorCode.inconsistent_group_protocol
        decision.refuse(waiter, code, join_error(code, member_id))
    else:
        # Only a request that is not refused brings a group into being.
        shard.groups.setdefault(group.group_id, group)
        if consumer_group is not None:  # without members: it becomes a classic one
            decision.records += group_tombstones(consumer_group)
        if member_id:
            _join_with_member_id(shard, group, request, waiter, decision)
        else:
            _join_without_member_id(shard, group, request, waiter, decision)


def _has_room(shard: GroupShard, group: Group, member_id: str) -> bool:
    """Whether group.max.size lets the member in.

    During a rebalance those who wait count, not those who were members: a group above a lowered limit thus loses
    its last members to rejoin.
    """
    size_max = shard.config.group_max_size
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        return member_id in group.joining or len(group.joining) < size_max
    return member_id in group.members or len(group.members) < size_max


def _join_without_member_id(
    shard: GroupShard, group: Group, request: JoinGroupRequest, waiter: Waiter, decision: Decision
) -> None:
    if request.HasField("group_instance_id"):
        instance_id = request.group_instance_id
        member_id = _new_member_id(instance_id, decision)
        if instance_id in group.static_members:
            join_known_instance(shard, group, request, member_id, waiter, decision)
        else:
            _add_member(shard, group, request, member_id, waiter, decision)
        return
    member_id = _new_member_id(request.client.client_id, decision)
    if not request.require_known_member_id:
        _add_member(shard, group, request, member_id, waiter, decision)
        return
    # KIP-394: a client that gives up and tries again must not leave a ghost behind each time.
    group.pending_members.add(member_id)
    shard.timers.schedule(session_of(group, member_id), decision.monotonic_ms + request.session_timeout_ms)
    code = ErrorCode.member_id_required
    decision.refuse(waiter, code, join_error(code, member_id))


def _join_with_member_id(
    shard: GroupShard, group: Group, request: JoinGroupRequest, waiter: Waiter, decision: Decision
) -> None:
    member_id = request.member_id
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    if member_id in group.pending_members and instance_id is None:
        _add_member(shard, group, request, member_id, waiter, decision)
        return
    code = group.validate_member(member_id, instance_id)
    if code is not ErrorCode.none:
        decision.refuse(waiter, code, join_error(code, member_id))
        return
    member = group.members[member_id]
    same_metadata = member.protocols == protocols_of(request)
    stable = group.state is GroupState.STABLE
    # A leader that joins a stable group again wants a new assignment: it saw something change that its own
    # metadata does not show, such as a topic's partitions.
    if same_metadata and (
        group.state is GroupState.COMPLETING_REBALANCE or (stable and group.leader != member_id)
    ):
        # Its answer was lost, or it asks for no reason: tell it the generation that stands. It has been heard of.
        shard.start_session(group, member, decision)
        decision.reply(waiter, joined(group, member_id, with_members=False if stable else None))
        return
    group.update_protocols(member, protocols_of(request))
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    park_join(group, member_id, waiter, decision)
    reason = f"member {member_id} rejoins{_client_reason(request)}"
    rebalance_or_complete(shard, group, decision, reason)


def _add_member(
    shard: GroupShard,
    group: Group,
    request: JoinGroupRequest,
    member_id: str,
    waiter: Waiter,
    decision: Decision,
) -> None:
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id if request.HasField("group_instance_id") else None,
        client_id=request.client.client_id,
        client_host=request.client.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
        is_new=True,
    )
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.initial_rebalance is not None:
        group.initial_rebalance.member_added = True
    group.add_member(member)
    park_join(group, member_id, waiter, decision)
    join_timeout_ms = shard.config.group_new_member_join_timeout_ms
    shard.timers.schedule(session_of(group, member_id), decision.monotonic_ms + join_timeout_ms)
    rebalance_or_complete(shard, group, decision, f"member {member_id} joins{_client_reason(request)}")


def _new_member_id(name: str, decision: Decision) -> str:
    return f"{name[: limits.MEMBER_ID_PREFIX_MAX]}-{decision.draw_id()}"


def _client_reason(request: JoinGroupRequest) -> str:
    return f": {request.reason}" if request.reason else ""
