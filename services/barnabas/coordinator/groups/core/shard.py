"""The groups and offsets of one partition of __consumer_offsets."""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.group import Group, Member
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
)
from barnabas.coordinator.groups.core.states import GroupEvent
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind, Timers
from barnabas.coordinator.groups.core.uncommitted import GroupOffsets, UncommittedOffsets


class GroupShard:
    """Owns everything the coordinator knows of one partition.

    Two kinds of state. What the log says, or will say once the decisions on their way are in it: `stored` and
    `offsets`; only `replay` changes them, the same way while loading and while serving. What is happening: `groups` and
    `timers`, which the handlers change and which a new coordinator starts afresh from `stored`: members then simply
    join or send heartbeats again.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.stored: dict[str, StoredGroup] = {}
        self.timers = Timers()
        self._uncommitted = UncommittedOffsets()

    def replay_uncommitted(self, record: GroupLogRecord) -> None:
        """Take in one record that is decided and on its way into the log; `on_committed` follows."""
        if isinstance(record, OffsetRecord):
            before = self.offsets.get(record.group_id, {}).get(record.topic, {}).get(record.partition)
            self._uncommitted.on_decided(record, before)
        self.replay(record)

    def on_committed(self, record: GroupLogRecord) -> None:
        """The oldest record that `replay_uncommitted` took in is in the log now."""
        if isinstance(record, OffsetRecord):
            self._uncommitted.on_committed(record)

    def committed_offsets(self, group_id: str) -> GroupOffsets:
        """What the log certainly says of the group's offsets, without the decisions on their way."""
        return self._uncommitted.taken_out_of(self.offsets.get(group_id, {}), group_id)

    def next_deadline_ms(self) -> int | None:
        """When time is needed next, in monotonic ms, or a little earlier; None for never."""
        return self.timers.next_ms()

    def on_jump(self, now_ms: int, jumped_ms: int) -> None:
        """Members that are alive keep their sessions; those that are not lose them limits.AFTER_JUMP_MS later."""
        self.timers.spare(now_ms, jumped_ms, limits.AFTER_JUMP_MS)

    def replay(self, record: GroupLogRecord) -> None:
        """Take in one record of the log."""
        if isinstance(record, OffsetRecord):
            self._replay_offset(record)
        else:
            self._replay_group(record)

    def _replay_offset(self, record: OffsetRecord) -> None:
        if record.value is not None:
            # A consumer that only commits never joins: its group exists by its offsets.
            self.groups.setdefault(record.group_id, Group(record.group_id))
            topics = self.offsets.setdefault(record.group_id, {})
            topics.setdefault(record.topic, {})[record.partition] = record.value
            return
        topics = self.offsets.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self.offsets.pop(record.group_id, None)

    def _replay_group(self, record: GroupRecord) -> None:
        if record.value is not None:
            self.stored[record.group_id] = record.value
            self.groups.setdefault(record.group_id, Group(record.group_id))
            return
        self.stored.pop(record.group_id, None)
        group = self.groups.get(record.group_id)
        # A tombstone may also stand between older and newer facts: only a group that nothing keeps goes.
        if group is not None and group.can(GroupEvent.REMOVED) and record.group_id not in self.offsets:
            self.remove_group(group)

    def remove_group(self, group: Group) -> None:
        """Forget an empty group."""
        group.apply_event(GroupEvent.REMOVED, group.state_timestamp_ms)
        for member_id in group.pending_members:
            self.timers.cancel(session_of(group, member_id))
        del self.groups[group.group_id]

    def start_session(self, group: Group, member: Member, decision: Decision) -> None:
        """Give `member` its session timeout from now on."""
        at_ms = decision.monotonic_ms + member.session_timeout_ms
        self.timers.schedule(session_of(group, member.member_id), at_ms)


def session_of(group: Group, member_id: str) -> Deadline:
    """The deadline of a member's session, or of a pending member's return."""
    return Deadline(DeadlineKind.SESSION, group.group_id, member_id)


def join_of(group: Group) -> Deadline:
    """The deadline for members to join again."""
    return Deadline(DeadlineKind.JOIN, group.group_id)


def sync_of(group: Group) -> Deadline:
    """The deadline for members to ask for their assignment."""
    return Deadline(DeadlineKind.SYNC, group.group_id)


EXPIRATION = Deadline(DeadlineKind.EXPIRATION)
"""The next look for expired offsets."""
