"""Subscriptions by regular expression (RE2; the whole name of a topic must match).

The topics are found apart from the heartbeat that asks for it: one regular expression a step, so that the event loop
gets a turn in between; when all of the group's are through, the records are written together, and the group's epoch
rises if there is anything new. That happens at a heartbeat, ten seconds after the last time at the soonest, when
there are topics that were not there then, or a regular expression that was not.

Whoever may see a topic is in the group's own hands here: there is no authorization that could say otherwise.
"""

from __future__ import annotations

import enum

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member, Resolution
from barnabas.coordinator.groups.consumer.core.records import (
    GroupEpoch,
    GroupEpochRecord,
    RegexRecord,
    ResolvedRegex,
)
from barnabas.coordinator.groups.consumer.core.timers import regex_of
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.patterns import PatternRefused, compile_pattern


class RegexChange(enum.Enum):
    """What became of a member's regular expression."""

    NONE = enum.auto()
    UNRESOLVED = enum.auto()
    """It is another one, whose topics are not known yet."""
    RESOLVED = enum.auto()
    """It is another one, whose topics are known; or there is none any more."""


def update_regex(
    shard: GroupShard, group: ConsumerGroup, before: Member, after: Member, decision: Decision
) -> RegexChange:
    """Take in what a member subscribes to by regular expression, and have topics found where that is due.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    old, new = before.metadata.topic_regex, after.metadata.topic_regex
    change = RegexChange.NONE
    if old != new:
        change = RegexChange.UNRESOLVED
        if new and not group.regexes[new]:
            _check(new)
        if old and group.regexes[old] == 1 and old in group.resolved:
            decision.records.append(RegexRecord(group.group_id, old, None))
        if not new or (group.regexes[new] and new in group.resolved):
            change = RegexChange.RESOLVED
    if new or group.regexes:
        _resolve_if_due(shard, group, old, new, decision)
    return change


def _check(regex: str) -> None:
    try:
        compile_pattern(regex)
    except PatternRefused as refused:
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {refused}.",
        ) from None


def _resolve_if_due(shard: GroupShard, group: ConsumerGroup, old: str, new: str, decision: Decision) -> None:
    if group.resolution is not None or shard.timers.time_of(regex_of(group.group_id)) is not None:
        return
    last = next(iter(group.resolved.values()), None)
    # What another coordinator found, whose clock is ahead, is no reason to wait until then.
    if last is not None and 0 <= decision.now_ms - last.timestamp_ms <= limits.REGEX_PAUSE_MS:
        return
    subscribed = dict(group.regexes)
    if old != new:
        subscribed[new] = subscribed.get(new, 0) + 1
        subscribed[old] = subscribed.get(old, 1) - 1
    wanted = {regex for regex, count in subscribed.items() if regex and count > 0}
    is_due = last is not None and (
        last.version < shard.consumers.topics.version_of_newest
        or decision.now_ms > last.timestamp_ms + shard.config.group_consumer_regex_refresh_interval_ms
    )
    if wanted and (is_due or not wanted <= group.resolved.keys()):
        shard.timers.schedule(regex_of(group.group_id), decision.monotonic_ms)


def resolve_next(shard: GroupShard, group: ConsumerGroup, decision: Decision) -> None:
    """Find the topics of one more regular expression of the group; after the last one, write what was found."""
    topics = shard.consumers.topics
    if group.resolution is None:
        group.resolution = Resolution(topics.image.revision, sorted(group.regexes))
    resolution = group.resolution
    if resolution.pending:
        regex = resolution.pending.pop()
        resolution.resolved[regex] = _matching(topics, regex)
    if resolution.pending:
        # A moment later: what is due now is handled before anybody else gets a turn.
        shard.timers.schedule(regex_of(group.group_id), decision.monotonic_ms + 1)
        return
    group.resolution = None
    _write(shard, group, resolution, decision)


def _matching(topics: Topics, regex: str) -> frozenset[str]:
    try:
        pattern = compile_pattern(regex)
    except PatternRefused:
        return frozenset()  # a coordinator before this one took it
    return frozenset(name for name in topics.image.topics if pattern.fullmatch(name))


def _write(shard: GroupShard, group: ConsumerGroup, resolution: Resolution, decision: Decision) -> None:
    has_changed = False
    found = dict(group.resolved)
    for regex, topics in resolution.resolved.items():
        if not group.regexes[regex]:
            continue  # nobody subscribes to it any more
        known = group.resolved.get(regex)
        has_changed |= topics != (frozenset() if known is None else known.topics)
        found[regex] = ResolvedRegex(topics, resolution.version, decision.now_ms)
        decision.records.append(RegexRecord(group.group_id, regex, found[regex]))
    subscribed = set(group.topic_names).union(
        *(found[regex].topics for regex in group.regexes if regex in found)
    )
    metadata_hash = shard.consumers.topics.hash_of(subscribed)
    if has_changed or metadata_hash != group.metadata_hash:
        epoch = GroupEpoch(group.epoch + 1, metadata_hash)
        decision.records.append(GroupEpochRecord(group.group_id, epoch))
        decision.note(
            "topics of regular expressions have changed", group_id=group.group_id, epoch=epoch.epoch
        )
