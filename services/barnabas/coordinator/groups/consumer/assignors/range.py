"""The assignor "range": of each topic, every member has one stretch of partitions.

Members stand in line, static ones by their instance ids, then the others by their member ids; those who come first have
one partition more where it does not come out even. Members that subscribe alike and topics with equally many partitions
so have the same partitions of each (co-partitioning). What a member had before counts for nothing.
"""

from __future__ import annotations

from collections import Counter

from barnabas.coordinator.groups.consumer.assignors.specification import (
    Assignment,
    GroupSpecification,
    TopicId,
)


def assign_ranges(group: GroupSpecification) -> dict[str, Assignment]:
    """An `Assign`."""
    subscribers = Counter(topic_id for member in group.members.values() for topic_id in member.topics)
    shares = {
        topic_id: divmod(group.partition_counts[topic_id], count) for topic_id, count in subscribers.items()
    }
    turns: Counter[TopicId] = Counter()
    assigned: dict[str, Assignment] = {}
    for member_id in sorted(group.members, key=lambda member_id: _place_in_line(group, member_id)):
        stretches: dict[TopicId, frozenset[int]] = {}
        for topic_id in sorted(group.members[member_id].topics):
            share, left_over = shares[topic_id]
            turn = turns[topic_id]
            turns[topic_id] += 1
            start = turn * share + min(turn, left_over)
            end = start + share + (turn < left_over)
            if start < end:
                stretches[topic_id] = frozenset(range(start, end))
        assigned[member_id] = stretches
    return assigned


def _place_in_line(group: GroupSpecification, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
