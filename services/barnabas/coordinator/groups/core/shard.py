"""The groups and offsets of one partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.groups import ConsumerGroups
from barnabas.coordinator.groups.consumer.core.records import ConsumerRecord
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.group import Group, Member
from barnabas.coordinator.groups.core.known_producers import KnownProducers
from barnabas.coordinator.groups.core.pending import PendingOffsets
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetKey,
    OffsetRecord,
    StoredGroup,
)
from barnabas.coordinator.groups.core.states import GroupEvent
from barnabas.coordinator.groups.core.timers import Deadline, DeadlineKind, Timers
from barnabas.coordinator.groups.core.uncommitted import GroupOffsets, OffsetState, UncommittedOffsets


class GroupShard:
    """Owns everything the coordinator knows of one partition.

    Two kinds of state. What the log says, or will say once the decisions on their way are in it: `stored`, `offsets`,
    `consumers`, `pending` and `producers`; only `replay` changes them, the same way while loading and while serving.
    What is happening: `groups`, `timers` and the questions about producers, which the handlers change and which a new
    coordinator starts afresh from `stored`: members then simply join or send heartbeats again.

    A group is of one type: its id is in `groups` (classic) or in `consumers` (KIP-848), never in both once the
    records of a decision are replayed.
    """

    def __init__(self, config: CoordinatorConfig, consumers: ConsumerGroups | None = None) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.consumers = ConsumerGroups() if consumers is None else consumers
        self.offsets: dict[str, GroupOffsets] = {}
        self.stored: dict[str, StoredGroup] = {}
        self.pending = PendingOffsets()
        self.producers = KnownProducers()
        self.timers = Timers()
        self._uncommitted = UncommittedOffsets()

    def replay_uncommitted(self, record: GroupLogRecord) -> None:
        """Take in one record that is decided and on its way into the log; `on_committed` follows."""
        changed: Collection[OffsetKey] = ()
        if isinstance(record, OffsetRecord):
            changed = (record.key,)
        elif isinstance(record, MarkerRecord):
            changed = self.pending.keys_of(record.producer.producer_id)
        before = [self._state_of(key) for key in changed]
        self.replay(record)
        self._uncommitted.on_decided(
            [(key, was, self._state_of(key)) for key, was in zip(changed, before, strict=True)]
        )

    def on_committed(self, _: GroupLogRecord) -> None:
        """The oldest record that `replay_uncommitted` took in is in the log now."""
        self._uncommitted.on_committed()

    def committed_offsets(self, group_id: str) -> GroupOffsets:
        """What the log certainly says of the group's offsets, without the decisions on their way."""
        return self._uncommitted.taken_out_of(self.offsets.get(group_id, {}), group_id)

    def is_pending_in_log(self, key: OffsetKey) -> bool:
        """Whether an open transaction has an offset there, as the log certainly says."""
        by_log = self._uncommitted.is_pending(key)
        return self.pending.has(key) if by_log is None else by_log

    def _state_of(self, key: OffsetKey) -> OffsetState:
        return OffsetState(self.offset_of(key), self.pending.has(key))

    def offset_of(self, key: OffsetKey) -> OffsetAndMetadata | None:
        """What is committed there, or is about to be."""
        return self.offsets.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def is_deleted(self, topic_id: bytes) -> bool:
        """Whether somebody deleted the topic. Another one may have its name, and nothing that was committed for it."""
        return topic_id in self.consumers.topics.image.deleted_topics

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
        elif isinstance(record, GroupRecord):
            self._replay_group(record)
        elif isinstance(record, MarkerRecord):
            self._replay_marker(record)
        else:
            self._replay_consumer(record)

    def _replay_offset(self, record: OffsetRecord) -> None:
        if record.producer is not None:
            self.producers.replay_record(record.producer)
        if record.value is not None:
            # A consumer that only commits never joins: its group exists by its offsets, pending ones too.
            if record.group_id not in self.groups and record.group_id not in self.consumers:
                self.groups[record.group_id] = Group(record.group_id)
            if record.producer is not None:
                self.pending.add(record.producer.producer_id, record.key, record.value)
            else:
                self.pending.on_committed_outside(record.key)
                self._store(record.key, record.value)
            return
        self.pending.drop(record.key)
        topics = self.offsets.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        partitions.pop(record.partition, None)
        if not partitions:
            topics.pop(record.topic, None)
        if not topics:
            self.offsets.pop(record.group_id, None)

    def _store(self, key: OffsetKey, value: OffsetAndMetadata) -> None:
        self.offsets.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = value

    def _replay_marker(self, record: MarkerRecord) -> None:
        self.producers.replay_marker(record.producer, record.coordinator_epoch)
        for key, value in self.pending.end(record.producer.producer_id, committed=record.committed):
            self._store(key, value)

    def has_offsets(self, group_id: str) -> bool:
        """Whether offsets of the group are there, or may come to count."""
        return group_id in self.offsets or self.pending.has_group(group_id)

    def _replay_group(self, record: GroupRecord) -> None:
        if record.value is not None:
            self.stored[record.group_id] = record.value
            self.groups.setdefault(record.group_id, Group(record.group_id))
            self.consumers.groups.pop(record.group_id, None)
            return
        self.stored.pop(record.group_id, None)
        group = self.groups.get(record.group_id)
        # A tombstone may also stand between older and newer facts: only a group that nothing keeps goes.
        if group is not None and group.can(GroupEvent.REMOVED) and not self.has_offsets(record.group_id):
            self.remove_group(group)

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group_id = record.group_id
        self.consumers.replay(record)
        if record.value is not None:
            # Of whatever state: what waited in it was told when it was decided that it becomes another type.
            classic = self.groups.pop(group_id, None)
            if classic is not None:
                self.stored.pop(group_id, None)
                self.cancel_timers(classic)
        elif group_id not in self.consumers and self.has_offsets(group_id):
            self.groups.setdefault(group_id, Group(group_id))

    def remove_group(self, group: Group) -> None:
        """Forget an empty group."""
        group.apply_event(GroupEvent.REMOVED, group.state_timestamp_ms)
        for member_id in group.pending_members:
            self.timers.cancel(session_of(group, member_id))
        del self.groups[group.group_id]

    def cancel_timers(self, group: Group) -> None:
        """Nothing that `group` waits for comes any more."""
        for member_id in (*group.members, *group.pending_members):
            self.timers.cancel(session_of(group, member_id))
        self.timers.cancel(join_of(group))
        self.timers.cancel(sync_of(group))

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
