"""The assignor "uniform": members have equally many partitions, and as far as that allows what they had before.

Where all members subscribe to the same topics, sizes differ by one at most, and no partition moves without need. Where
they do not, partitions move from members that have more to such that have less and subscribe to the topic too, until no
topic has two of its subscribers two apart; or until `ROUNDS_MAX`, for what is left by then comes in small steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from barnabas.coordinator.groups.consumer.assignors.specification import (
    Assignment,
    GroupSpecification,
    TopicId,
)

ROUNDS_MAX: Final = 16
"""How often all topics are looked at for partitions that could move."""

_Partitions = dict[TopicId, set[int]]


def assign_uniformly(group: GroupSpecification) -> dict[str, Assignment]:
    """An `Assign`."""
    if group.is_homogeneous:
        return _assign_equally(group)
    return _Balance(group).assign()


# -- all members subscribe alike -----------------------------------------------------------------------------


def _assign_equally(group: GroupSpecification) -> dict[str, Assignment]:
    topics = next((member.topics for member in group.members.values()), frozenset())
    total = sum(group.partition_counts[topic_id] for topic_id in topics)
    if not group.members:
        return {}
    quota, left_over = divmod(total, len(group.members))
    kept, taken = _what_was(group)
    sizes = {member_id: _size(partitions) for member_id, partitions in kept.items()}
    # One more than the quota goes to those who have it already, then to the first who have less.
    larger = [member_id for member_id, size in sizes.items() if size > quota][:left_over]
    others = (member_id for member_id, size in sizes.items() if size <= quota)
    larger += [member_id for member_id, _ in zip(others, range(left_over - len(larger)), strict=False)]
    limits = dict.fromkeys(sizes, quota) | dict.fromkeys(larger, quota + 1)
    for member_id, partitions in kept.items():
        _drop_above(limits[member_id], partitions, taken)
    free = _free(group, sorted(topics), taken)
    for member_id, partitions in kept.items():
        for _ in range(limits[member_id] - _size(partitions)):
            topic_id, partition = next(free)
            partitions.setdefault(topic_id, set()).add(partition)
    return _frozen(kept)


def _what_was(group: GroupSpecification) -> tuple[dict[str, _Partitions], dict[TopicId, set[int]]]:
    """What each member had of the topics that it still subscribes to, and which partitions these are together. What the
    topic does not have is left out: where it came from an assignor of classic members, it would be somebody's for ever.
    """
    kept: dict[str, _Partitions] = {}
    taken: dict[TopicId, set[int]] = {}
    for member_id, member in group.members.items():
        mine = kept[member_id] = {}
        for topic_id, partitions in member.assignment.items():
            if topic_id not in member.topics:
                continue
            others = taken.setdefault(topic_id, set())
            still = partitions.difference(others)
            if still and not 0 <= min(still) <= max(still) < group.partition_counts[topic_id]:
                still = still.intersection(range(group.partition_counts[topic_id]))
            if still:
                mine[topic_id] = set(still)
                others |= still
    return kept, taken


def _drop_above(limit: int, partitions: _Partitions, taken: dict[TopicId, set[int]]) -> None:
    """Let go of what a member has above the limit."""
    above = _size(partitions) - limit
    for topic_id in sorted(partitions, reverse=True):
        if above <= 0:
            return
        for partition in sorted(partitions[topic_id], reverse=True)[:above]:
            partitions[topic_id].discard(partition)
            taken[topic_id].discard(partition)
            above -= 1
        if not partitions[topic_id]:
            del partitions[topic_id]


def _free(
    group: GroupSpecification, topics: list[TopicId], taken: dict[TopicId, set[int]]
) -> Iterator[tuple[TopicId, int]]:
    """What nobody has, topic by topic."""
    for topic_id in topics:
        mine = taken.get(topic_id, set())
        for partition in range(group.partition_counts[topic_id]):
            if partition not in mine:
                yield topic_id, partition


def _size(partitions: _Partitions) -> int:
    return sum(map(len, partitions.values()))


def _frozen(assigned: dict[str, _Partitions]) -> dict[str, Assignment]:
    return {
        member_id: {topic_id: frozenset(some) for topic_id, some in partitions.items()}
        for member_id, partitions in assigned.items()
    }


# -- members subscribe differently ---------------------------------------------------------------------------


class _Balance:
    """Owns an assignment in the making; members go by their place in the list."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._member_ids = list(group.members)
        kept, self._taken = _what_was(group)
        self._partitions = [kept[member_id] for member_id in self._member_ids]
        self._sizes = [_size(partitions) for partitions in self._partitions]
        self._subscribers: dict[TopicId, list[int]] = {}
        for index, member in enumerate(group.members.values()):
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(index)

    def assign(self) -> dict[str, Assignment]:
        # Topics with the most for each subscriber first: they leave the least choice.
        topics = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -self._group.partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )
        for topic_id in topics:
            self._hand_out(topic_id)
        shared = [topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum(self._even_out(topic_id) for topic_id in shared):
                break
        return _frozen(dict(zip(self._member_ids, self._partitions, strict=True)))

    def _hand_out(self, topic_id: TopicId) -> None:
        """Give what nobody has of a topic to those of its subscribers who have the least."""
        least = [(self._sizes[index], index) for index in self._subscribers[topic_id]]
        heapq.heapify(least)
        for _, partition in _free(self._group, [topic_id], self._taken):
            size, index = least[0]
            self._partitions[index].setdefault(topic_id, set()).add(partition)
            self._sizes[index] = size + 1
            heapq.heapreplace(least, (size + 1, index))

    def _even_out(self, topic_id: TopicId) -> int:
        """Move partitions of a topic from who has the most to who has the least; returns how many."""
        subscribers = self._subscribers[topic_id]
        least = [(self._sizes[index], index) for index in subscribers]
        most = [
            (-self._sizes[index], index) for index in subscribers if self._partitions[index].get(topic_id)
        ]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            giver, taker = most[0][1], least[0][1]
            if -most[0][0] != self._sizes[giver] or not self._partitions[giver].get(topic_id):
                heapq.heappop(most)  # its size has changed since; it is there again with the new one
                continue
            if least[0][0] != self._sizes[taker]:
                heapq.heappop(least)
                continue
            if self._sizes[giver] - self._sizes[taker] <= 1:
                break
            self._move(topic_id, giver, taker)
            moved += 1
            for index in (giver, taker):
                heapq.heappush(least, (self._sizes[index], index))
                heapq.heappush(most, (-self._sizes[index], index))
        return moved

    def _move(self, topic_id: TopicId, giver: int, taker: int) -> None:
        partitions = self._partitions[giver][topic_id]
        partition = max(partitions)
        partitions.discard(partition)
        if not partitions:
            del self._partitions[giver][topic_id]
        self._partitions[taker].setdefault(topic_id, set()).add(partition)
        self._sizes[giver] -= 1
        self._sizes[taker] += 1
