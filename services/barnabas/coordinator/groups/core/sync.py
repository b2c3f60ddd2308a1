"""SyncGroup: the leader hands out the assignment, the others ask for theirs."""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.classic_members import sync_consumer_group
from barnabas.coordinator.groups.core.answers import sync_error, synced
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.rebalance import prepare_rebalance
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard, sync_of
from barnabas.coordinator.groups.core.states import GroupEvent, GroupState
from barnabas.coordinator.groups.core.waiting import park_sync
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import SyncGroupRequest


def handle_sync(shard: GroupShard, request: SyncGroupRequest, waiter: Waiter, decision: Decision) -> None:
    """Answer with the assignment, or park the caller until the leader has sent it."""
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        sync_consumer_group(shard, consumer_group, request, waiter, decision)
        return
    group = shard.groups.get(request.group_id)
    code = ErrorCode.unknown_member_id if group is None else _refusal(group, request)
    if group is None or code is not ErrorCode.none:
        decision.refuse(waiter, code, sync_error(code))
        return
    member_id = request.member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        code = ErrorCode.rebalance_in_progress
        decision.refuse(waiter, code, sync_error(code))
        return
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        shard.timers.cancel(sync_of(group))
    if group.state is GroupState.STABLE:
        # Who asks is there, and may have come long after its generation began; it sends heartbeats once it is told.
        shard.start_session(group, group.members[member_id], decision)
        decision.reply(waiter, synced(group, member_id))
        return
    assert group.state is GroupState.COMPLETING_REBALANCE, "a group with members is in one of three states"
    park_sync(group, member_id, waiter, decision)
    if group.leader == member_id:
        _assign(shard, group, request, decision)


def _refusal(group: Group, request: SyncGroupRequest) -> ErrorCode:
    instance_id = request.group_instance_id if request.HasField("group_instance_id") else None
    code = group.validate_member(request.member_id, instance_id)
    if code is not ErrorCode.none:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.illegal_generation
    # KIP-559: only what the client says is held against it.
    if request.HasField("protocol_type") and request.protocol_type != group.protocol_type:
        return ErrorCode.inconsistent_group_protocol
    if request.HasField("protocol_name") and request.protocol_name != group.protocol:
        return ErrorCode.inconsistent_group_protocol
    return ErrorCode.none


def _assign(shard: GroupShard, group: Group, request: SyncGroupRequest, decision: Decision) -> None:
    """Take the leader's assignment; members that it left out get an empty one."""
    assignments = {item.member_id: item.assignment for item in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    if group.record_bytes() > limits.GROUP_RECORD_BYTES_MAX:
        decision.note(
            "the group is too large to be stored", group_id=group.group_id, members=len(group.members)
        )
        code = ErrorCode.unknown_server_error
        for waiter in group.syncing.values():
            decision.refuse(waiter, code, sync_error(code))
        group.syncing.clear()
        prepare_rebalance(shard, group, decision, "the group is too large to be stored")
        return
    group.apply_event(GroupEvent.ASSIGNED, decision.now_ms)
    decision.records.append(GroupRecord(group.group_id, group.to_stored()))
    for member_id, waiter in group.syncing.items():
        decision.reply(waiter, synced(group, member_id))
        # Its session may have run out while it waited, which was not held against it.
        shard.start_session(group, group.members[member_id], decision)
    group.syncing.clear()
    decision.rebalances_completed += 1
    decision.note("group is stable", group_id=group.group_id, generation=group.generation)
