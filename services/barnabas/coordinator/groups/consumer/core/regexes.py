"""Subscriptions by regular expression (RE2; the whole name of a topic must match).

The topics are found apart from the heartbeat that asks for it: so many names a step, so that the event loop gets a turn
in between; when all of the group's are through, the records are written together, and the group's epoch
rises if there is anything new. That happens at a heartbeat, ten seconds after the last time at the soonest, when
there are topics that were not there then, or a regular expression that was not.

Whoever may see a topic is in the group's own hands here: there is no authorization that could say otherwise.
"""

from __future__ import annotations

import contextlib
import enum
from typing import Final

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member, Resolution
from barnabas.coordinator.groups.consumer.core.records import (
    GroupEpoch,
    GroupEpochRecord,
    RegexRecord,
    ResolvedRegex,
)
from barnabas.coordinator.groups.consumer.core.timers import regex_of
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.patterns import PatternRefused, compile_pattern

_LENGTH_BYTES: Final = 2
"""What the record has before each name at most."""


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
    """Find some more topics of the group's regular expressions; after the last ones, write what was found."""
    image = shard.consumers.topics.image
    if group.resolution is None:
        group.resolution = Resolution(image.revision, tuple(image.topics), sorted(group.regexes))
    resolution = group.resolution
    if resolution.pending:
        _match_some(resolution)
    if resolution.pending:
        # A moment later: what is due now is handled before anybody else gets a turn.
        shard.timers.schedule(regex_of(group.group_id), decision.monotonic_ms + 1)
        return
    group.resolution = None
    _write(shard, group, resolution, decision)


def _match_some(resolution: Resolution) -> None:
    start, regex = resolution.looked_at, resolution.pending[-1]
    resolution.looked_at += limits.REGEX_NAMES_AT_ONCE
    # A coordinator before this one may have taken what this one does not know: then nothing matches.
    with contextlib.suppress(PatternRefused):
        pattern = compile_pattern(regex)
        some = resolution.names[start : resolution.looked_at]
        resolution.matched.update(name for name in some if pattern.fullmatch(name))
    if resolution.looked_at >= len(resolution.names):
        resolution.pending.pop()
        resolution.resolved[regex] = frozenset(resolution.matched)
        resolution.matched.clear()
        resolution.looked_at = 0


def _write(shard: GroupShard, group: ConsumerGroup, resolution: Resolution, decision: Decision) -> None:
    has_changed = False
    found = dict(group.resolved)
    for regex, topics in resolution.resolved.items():
        if not group.regexes[regex]:
            continue  # nobody subscribes to it any more
        known = group.resolved[regex].topics if regex in group.resolved else frozenset()
        if sum(map(len, topics)) + _LENGTH_BYTES * len(topics) > limits.REGEX_TOPICS_BYTES_MAX:
            decision.note(
                "a regular expression matches too many topics: it keeps those that it had",
                group_id=group.group_id,
                matches=len(topics),
                had=len(known),
            )
            topics = known
        has_changed |= topics != known
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
