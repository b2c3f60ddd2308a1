"""The target of a group: who is to have what, and how it is written when it changes."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    GroupSpecification,
    MemberSpecification,
)
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    ConsumerRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.groups.consumer.core.topics import Topics


def is_time_for_target(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether another target may be made: not too soon after the last one (KIP-1263).

    Other than in Kafka, a last one that was made in the future does not keep others away: it was another coordinator's,
    whose clock is ahead, maybe by hours.
    """
    last_ms = group.target_epoch.timestamp_ms
    return not last_ms <= now_ms < last_ms + interval_ms


def make_target(
    group: ConsumerGroup, topics: Topics, epoch: int, assignor: str, member: Member, now_ms: int
) -> tuple[Assignment, list[ConsumerRecord]]:
    """The target of `member`, who is new or has changed, and the records of all that changes with it."""
    specification = _specification(group, topics, member)
    targets = ASSIGNORS[assignor](specification)
    records: list[ConsumerRecord] = [
        TargetRecord(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    records.append(TargetEpochRecord(group.group_id, TargetEpoch(epoch, now_ms)))
    return targets[member.member_id], records


def _specification(group: ConsumerGroup, topics: Topics, member: Member) -> GroupSpecification:
    ids_of: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    members: dict[str, MemberSpecification] = {}
    for each, target in _members_with(group, member):
        metadata = each.metadata
        subscription = (metadata.topic_names, metadata.topic_regex)
        if subscription not in ids_of:
            ids_of[subscription] = topics.ids_of(group.topics_of(metadata))
        members[each.member_id] = MemberSpecification(ids_of[subscription], target, metadata.instance_id)
    counts = {topic_id: topics.partition_count(topic_id) for ids in ids_of.values() for topic_id in ids}
    return GroupSpecification(members, counts)


def _members_with(group: ConsumerGroup, member: Member) -> Iterator[tuple[Member, Assignment]]:
    """All members and what they were to have, with `member` as it is now; in place of the one that has its instance
    id, if there is one."""
    instance_id = member.metadata.instance_id
    replaced_id = member.member_id
    if instance_id is not None:
        replaced_id = group.static_members.get(instance_id, member.member_id)
    is_there = False
    for member_id, each in group.members.items():
        if member_id in (replaced_id, member.member_id):
            if not is_there:
                yield member, group.target_of(replaced_id)
            is_there = True
        else:
            yield each, group.target_of(member_id)
    if not is_there:
        yield member, group.target_of(replaced_id)
