"""The consumer groups of one partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup
from barnabas.coordinator.groups.consumer.core.records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.groups.consumer.core.topics import Topics

_NO_TARGET: Final = TargetEpoch(-1)


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """What a group can have settings of its own for, in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


TimesOf = Callable[[str], GroupTimes]
"""Of a group, by its id."""


def default_times(_: str) -> GroupTimes:
    """Of every group, where nobody set anything."""
    return GroupTimes()


class ConsumerGroups:
    """Owns the groups of the newer protocol; only `replay` changes what the log says of them.

    `topics` and `times_of` are the coordinator's: what the metadata say now.
    """

    def __init__(self, topics: Topics | None = None, times_of: TimesOf = default_times) -> None:
        self.topics = Topics() if topics is None else topics
        self.times_of = times_of
        self.groups: dict[str, ConsumerGroup] = {}

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group, if there is one of this type."""
        return self.groups.get(group_id)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.groups

    def on_topics_changed(self, names: Collection[str] | None) -> None:
        """These topics came, went, grew or moved; None when it may be any: groups that read them look again when a
        member is heard of next."""
        for group in self.groups.values():
            if names is None or any(group.is_subscribed_to(name) for name in names):
                group.needs_refresh = True

    def replay(self, record: ConsumerRecord) -> None:
        """Take in one record of the log."""
        if record.value is None:
            group = self.groups.get(record.group_id)
            if group is not None:
                self._forget(group, record)
            return
        group = self.groups.get(record.group_id)
        if group is None:
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id)
        match record:
            case GroupEpochRecord(value=epoch) if epoch is not None:
                group.epoch, group.metadata_hash = epoch.epoch, epoch.metadata_hash
            case SubscriptionMetadataRecord():
                group.has_subscription_metadata = True
            case MemberRecord(member_id=member_id, value=metadata) if metadata is not None:
                group.put_metadata(member_id, metadata)
            case TargetEpochRecord(value=target_epoch) if target_epoch is not None:
                group.target_epoch = target_epoch
            case TargetRecord(member_id=member_id, value=target) if target is not None:
                group.targets[member_id] = target
            case CurrentRecord(member_id=member_id, value=current) if current is not None:
                group.put_current(member_id, current)
            case RegexRecord(regex=regex, value=resolved) if resolved is not None:
                group.resolved[regex] = resolved

    def _forget(self, group: ConsumerGroup, record: ConsumerRecord) -> None:
        match record:
            case GroupEpochRecord():
                del self.groups[group.group_id]
            case SubscriptionMetadataRecord():
                group.has_subscription_metadata = False
            case MemberRecord(member_id=member_id):
                group.remove_member(member_id)
            case TargetEpochRecord():
                group.target_epoch = _NO_TARGET
            case TargetRecord(member_id=member_id):
                group.targets.pop(member_id, None)
            case CurrentRecord(member_id=member_id):
                group.clear_current(member_id)
            case RegexRecord(regex=regex):
                group.resolved.pop(regex, None)
