"""The steps that a request of a member goes through, once it is known whose it is.

Each adds its records to the decision, and works on what the steps before it made of the member: nothing is replayed
before the whole decision is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from barnabas.coordinator.groups.consumer.core.current_assignment import Reconciliation
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    SubscriptionMetadataRecord,
)
from barnabas.coordinator.groups.consumer.core.regexes import RegexChange, update_regex
from barnabas.coordinator.groups.consumer.core.targets import is_time_for_target, make_target
from barnabas.coordinator.groups.consumer.core.timers import rebalance_of, rebalance_timeout_ms
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard

_SAID_NOTHING: Final = MemberMetadata()


@dataclass(frozen=True, slots=True)
class _Target:
    epoch: int
    assignment: Assignment


def update_member(
    shard: GroupShard,
    group: ConsumerGroup,
    before: Member,
    after: Member,
    owned: Assignment | None,
    decision: Decision,
) -> Member:
    """Take in what `before` says of itself now, and bring it a step towards its target; returns what it is then."""
    group_epoch, has_changed = update_subscription(shard, group, before, after, decision)
    target = _target(shard, group, group_epoch, before, after, decision)
    after = reconcile(shard, group, after, target.epoch, target.assignment, has_changed, owned, decision)
    group.needs_refresh = False  # only now: a member that is refused has not had the topics looked at
    return after


def update_subscription(
    shard: GroupShard, group: ConsumerGroup, before: Member, after: Member, decision: Decision
) -> tuple[int, bool]:
    """The first steps: the group's epoch, and whether the member subscribes to something else than before."""
    if after.metadata != before.metadata or before.metadata == _SAID_NOTHING:
        decision.records.append(MemberRecord(group.group_id, after.member_id, after.metadata))
    names, old_names = after.metadata.topic_names, before.metadata.topic_names
    has_other_names = names is not old_names and names != old_names
    regex_change = update_regex(shard, group, before, after, decision)
    has_changed = has_other_names or regex_change is not RegexChange.NONE
    # A classic member has no regular expression; what it is without one is known at once.
    bumps = has_other_names or regex_change is RegexChange.RESOLVED
    if bumps or group.needs_refresh:
        return _refresh(shard, group, before, after, decision, bumps=bumps), has_changed
    return group.epoch, has_changed


def _refresh(
    shard: GroupShard, group: ConsumerGroup, before: Member, after: Member, decision: Decision, *, bumps: bool
) -> int:
    """Look at the topics that the group subscribes to; returns its epoch, which rises where there is anything new."""
    without = (before,) if _is_counted(group, before) else ()
    topics = group.subscribed_topics(without=without, with_member=after)
    metadata_hash = shard.consumers.topics.hash_of(topics)
    epoch = group.epoch
    if bumps or metadata_hash != group.metadata_hash:
        epoch += 1
        decision.records.append(GroupEpochRecord(group.group_id, GroupEpoch(epoch, metadata_hash)))
    if group.has_subscription_metadata:
        decision.records.append(SubscriptionMetadataRecord(group.group_id, None))
    return epoch


def _is_counted(group: ConsumerGroup, before: Member) -> bool:
    """Whether what the member said before is in what the group counts, maybe under another member's id."""
    return before.member_id in group.members or before.metadata.instance_id in group.static_members


def _target(
    shard: GroupShard,
    group: ConsumerGroup,
    group_epoch: int,
    before: Member,
    after: Member,
    decision: Decision,
) -> _Target:
    interval_ms = shard.consumers.times_of(group.group_id).assignment_interval_ms
    if group.target_epoch.epoch >= group_epoch or not is_time_for_target(group, interval_ms, decision.now_ms):
        return _Target(group.target_epoch.epoch, last_target(group, after))
    configured = shard.config.group_consumer_assignors
    wanted = group.preferred_assignor(before if _is_counted(group, before) else None, after)
    assignor = wanted if wanted in configured else configured[0]
    assignment, records = make_target(
        group, shard.consumers.topics, group_epoch, assignor, after, decision.now_ms
    )
    decision.records += records
    decision.rebalances_completed += 1
    return _Target(group_epoch, assignment)


def last_target(group: ConsumerGroup, member: Member) -> Assignment:
    """What the member was to have: an instance that came back has what it had."""
    instance_id = member.metadata.instance_id
    known = None if instance_id is None else group.static_members.get(instance_id)
    return group.target_of(member.member_id if known is None else known)


def reconcile(
    shard: GroupShard,
    group: ConsumerGroup,
    member: Member,
    target_epoch: int,
    target: Assignment,
    has_subscription_changed: bool,
    owned: Assignment | None,
    decision: Decision,
) -> Member:
    """Bring the member a step towards its target."""
    if not has_subscription_changed and member.is_reconciled_to(target_epoch):
        return member
    step = Reconciliation(
        target_epoch,
        target,
        shard.consumers.topics.ids_of(group.topics_of(member.metadata)),
        has_subscription_changed,
        owned,
        group.holder_of,
    )
    current = step.next(member)
    if current == member.current:
        return member
    decision.records.append(CurrentRecord(group.group_id, member.member_id, current))
    if not member.is_classic:
        deadline = rebalance_of(group.group_id, member.member_id)
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            shard.timers.schedule(deadline, decision.monotonic_ms + rebalance_timeout_ms(member))
        else:
            shard.timers.cancel(deadline)
    return replace(member, current=current)
