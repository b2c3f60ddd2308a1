"""What an assignor is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

TopicId = bytes
Assignment = Mapping[TopicId, frozenset[int]]
"""Partitions by topic."""


@dataclass(frozen=True, slots=True)
class MemberSpecification:
    """A member as an assignor sees it."""

    topics: frozenset[TopicId]
    """What it subscribes to; all of them exist."""
    assignment: Assignment
    """What it was to have so far."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpecification:
    """A group that needs a new assignment. What is assigned goes by the order of `members` where nothing else
    decides."""

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[TopicId, int]
    """Of each topic that somebody subscribes to."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({member.topics for member in self.members.values()}) <= 1


Assign = Callable[[GroupSpecification], dict[str, Assignment]]
"""An assignor: what each member is to have. A pure function, the same for the same specification."""
