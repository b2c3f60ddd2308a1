"""What deletes members and groups, in the order that replaying needs and Kafka has."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup
from barnabas.coordinator.groups.consumer.core.records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    SubscriptionMetadataRecord,
    TargetEpochRecord,
    TargetRecord,
)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """What deletes a member."""
    return [
        CurrentRecord(group_id, member_id, None),
        TargetRecord(group_id, member_id, None),
        MemberRecord(group_id, member_id, None),
    ]


def group_tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """What deletes a group with all of its members."""
    group_id = group.group_id
    return [
        *(CurrentRecord(group_id, member_id, None) for member_id in group.members),
        *(TargetRecord(group_id, member_id, None) for member_id in {**group.members, **group.targets}),
        TargetEpochRecord(group_id, None),
        *(MemberRecord(group_id, member_id, None) for member_id in group.members),
        *(RegexRecord(group_id, regex, None) for regex in group.resolved),
        SubscriptionMetadataRecord(group_id, None),
        GroupEpochRecord(group_id, None),
    ]
