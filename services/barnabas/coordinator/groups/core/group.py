"""A classic group as it is now: its members, who waits for what, and which generation they are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.coordinator.groups.core.decision import Waiter
from barnabas.coordinator.groups.core.records import NO_TIMESTAMP, StoredGroup, StoredMember
from barnabas.coordinator.groups.core.states import TRANSITIONS, GroupEvent, GroupState, next_state
from barnabas.kernel.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in its order of preference."""

_TEXT_BYTES_MAX: Final = 4
"""Of UTF-8, for one character."""
_GROUP_OVERHEAD_BYTES: Final = 128
_MEMBER_OVERHEAD_BYTES: Final = 64
"""Lengths, timeouts and the like in a generation's record, generously."""


@dataclass(slots=True)
class Member:
    """A member of a group. Timeouts are in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not been told its member id yet, so it cannot send heartbeats."""

    def metadata_for(self, protocol: str | None) -> bytes:
        """Its subscription under `protocol`; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class InitialRebalance:
    """The first rebalance of an empty group waits for more members (group.initial.rebalance.delay.ms)."""

    delay_ms: int
    remaining_ms: int
    """How much longer the wait may become when members keep coming."""
    member_added: bool = False


@dataclass(slots=True)
class Group:
    """Owns a group's members and the calls that wait in it. Everything here is soft but `generation` and what goes
    with it, of which the log's view is `GroupShard.stored`.

    The invariant: a member id is in at most one of `members` and `pending_members`; `joining`, `syncing` and
    `pending_sync` name members only.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """group.instance.id -> member id."""
    pending_members: set[str] = field(default_factory=set)
    """Told their member id and asked to join again with it (KIP-394)."""
    joining: dict[str, Waiter] = field(default_factory=dict)
    """Members whose JoinGroup waits."""
    syncing: dict[str, Waiter] = field(default_factory=dict)
    """Members whose SyncGroup waits."""
    pending_sync: set[str] = field(default_factory=set)
    """Members of this generation that have not asked for their assignment yet."""
    initial_rebalance: InitialRebalance | None = None
    protocol_support: Counter[str] = field(default_factory=Counter)
    """How many members support each protocol."""

    @classmethod
    def restore(cls, group_id: str, stored: StoredGroup) -> Group:
        """The group as the log knows it: stable, or empty when it had no members."""
        group = cls(
            group_id,
            state=GroupState.STABLE if stored.members else GroupState.EMPTY,
            state_timestamp_ms=stored.state_timestamp_ms,
            generation=stored.generation,
            protocol_type=stored.protocol_type or None,
            protocol=stored.protocol,
            leader=stored.leader,
        )
        for member in stored.members:
            group.add_member(_restored_member(member, stored.protocol or ""))
        return group

    def to_stored(self) -> StoredGroup:
        """What the log is to know of this generation."""
        members = tuple(_stored_member(member, self.protocol) for member in self.members.values())
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )

    def record_bytes(self) -> int:
        """About how large the record of this generation is; never too small."""
        texts = [self.group_id, self.protocol_type, self.protocol, self.leader]
        sizes = _TEXT_BYTES_MAX * sum(len(text or "") for text in texts) + _GROUP_OVERHEAD_BYTES
        for member in self.members.values():
            texts = [member.member_id, member.group_instance_id, member.client_id, member.client_host]
            sizes += _TEXT_BYTES_MAX * sum(len(text or "") for text in texts) + _MEMBER_OVERHEAD_BYTES
            sizes += len(member.metadata_for(self.protocol)) + len(member.assignment)
        return sizes

    def can(self, event: GroupEvent) -> bool:
        """Whether the table lists `event` for the present state."""
        return event in TRANSITIONS[self.state]

    def apply_event(self, event: GroupEvent, now_ms: int) -> None:
        """Move to the next state at `now_ms` (ms since the epoch)."""
        self.state = next_state(self.state, event)
        self.state_timestamp_ms = now_ms

    def add_member(self, member: Member) -> None:
        """Take `member` in; the first one becomes the leader."""
        assert member.member_id not in self.members, "a member is added once"
        self.pending_members.discard(member.member_id)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, "an instance id names one member"
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count_support(member.protocols, 1)

    def remove_member(self, member_id: str) -> None:
        """Take a member out; another becomes the leader if it was the one. Its waits must have been answered."""
        assert member_id not in self.joining, "answer a waiting member before removing it"
        assert member_id not in self.syncing, "answer a waiting member before removing it"
        member = self.members.pop(member_id)
        self.pending_sync.discard(member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._count_support(member.protocols, -1)

    def replace_static_member(self, instance_id: str, new_member_id: str) -> Member:
        """Give the static member `instance_id` a new member id; the old id is fenced from now on (KIP-345)."""
        old_member_id = self.static_members[instance_id]
        was_leader = self.leader == old_member_id
        member = self.members[old_member_id]
        self.remove_member(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.add_member(member)
        if was_leader:
            self.leader = new_member_id
        return member

    def update_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace what `member` supports."""
        self._count_support(member.protocols, -1)
        member.protocols = protocols
        self._count_support(protocols, 1)

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """`none`, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process took the instance id over."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def has_everyone_joined(self) -> bool:
        """Whether each member waits in JoinGroup and nobody is still to come with a fresh id."""
        return len(self.joining) == len(self.members) and not self.pending_members

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Whether a member with these protocols can be in the group together with the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_support[name] == everyone for name in names
        )

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member supports.

        Each member votes for the first it lists. Among equals the one that got a vote first wins, so that the
        choice does not depend on hashing.
        """
        everyone = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            names = (name for name, _ in member.protocols)
            votes[next(name for name in names if self.protocol_support[name] == everyone)] += 1
        return votes.most_common(1)[0][0]

    def _count_support(self, protocols: Protocols, change: int) -> None:
        for name in {name for name, _ in protocols}:
            self.protocol_support[name] += change
            if not self.protocol_support[name]:
                del self.protocol_support[name]


def protocol_names(protocols: Iterable[tuple[str, bytes]]) -> list[str]:
    """The names alone, in order."""
    return [name for name, _ in protocols]


def _restored_member(stored: StoredMember, protocol: str) -> Member:
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=((protocol, stored.subscription),),
        assignment=stored.assignment,
    )


def _stored_member(member: Member, protocol: str | None) -> StoredMember:
    return StoredMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata_for(protocol),
        assignment=member.assignment,
    )
