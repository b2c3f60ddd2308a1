"""The answers that more than one part of the state machine gives."""

from __future__ import annotations

from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.group import Group
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupResponse,
    SyncGroupResponse,
)

NO_GENERATION = -1


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """JoinGroup refused."""
    return JoinGroupResponse(error_code=code, generation_id=NO_GENERATION, member_id=member_id)


def joined(
    group: Group,
    member_id: str,
    *,
    leader: str | None = None,
    with_members: bool | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """JoinGroup granted in the group's present generation.

    `leader` is who the member is told leads, by default who does; `with_members` whether it gets the list of all
    members, by default when it leads.
    """
    assert group.protocol is not None, "a generation with members has a protocol"
    if with_members is None:
        with_members = member_id == group.leader
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader if leader is None else leader) or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=_members(group) if with_members else (),
    )


def _members(group: Group) -> list[JoinGroupMember]:
    return [
        JoinGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata_for(group.protocol),
        )
        for member in group.members.values()
    ]


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """SyncGroup refused."""
    return SyncGroupResponse(error_code=code)


def synced(group: Group, member_id: str) -> SyncGroupResponse:
    """The member's assignment in the group's present generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=group.members[member_id].assignment,
    )


def refuse_heartbeat(code: ErrorCode, waiter: Waiter, decision: Decision) -> None:
    """Heartbeat refused. While the log takes no writes nobody's session runs out, and nobody can say who is a member
    elsewhere by now: the member goes on, as while the group is being loaded."""
    if decision.is_read_only:
        decision.reply_unproven(waiter, HeartbeatResponse())
    else:
        decision.refuse(waiter, code, HeartbeatResponse(error_code=code))
