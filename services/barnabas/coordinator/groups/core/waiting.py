"""Calls that wait in a group."""

from __future__ import annotations

from barnabas.coordinator.groups.core.answers import join_error, sync_error
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group, Protocols
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import JoinGroupRequest


def park_join(group: Group, member_id: str, waiter: Waiter, decision: Decision) -> None:
    """Let `waiter` wait for the generation. An earlier call of the same member, given up by its client, ends."""
    earlier = group.joining.pop(member_id, None)
    if earlier is not None:
        code = ErrorCode.rebalance_in_progress
        decision.refuse(earlier, code, join_error(code, member_id))
    group.joining[member_id] = waiter


def park_sync(group: Group, member_id: str, waiter: Waiter, decision: Decision) -> None:
    """Let `waiter` wait for the assignment. An earlier call of the same member, given up by its client, ends."""
    earlier = group.syncing.pop(member_id, None)
    if earlier is not None:
        code = ErrorCode.rebalance_in_progress
        decision.refuse(earlier, code, sync_error(code))
    group.syncing[member_id] = waiter


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """What the member supports, in its order of preference."""
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
