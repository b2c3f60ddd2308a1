"""The states of a classic group and what moves it from one to the next."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class GroupState(enum.StrEnum):
    """Kafka's names, as DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again; their calls wait until all have, or time is up."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation stands; its leader's assignment is awaited."""
    STABLE = "Stable"
    """Every member has, or can ask for, its assignment."""
    DEAD = "Dead"
    """Removed; nothing refers to it any more."""


class GroupEvent(enum.Enum):
    """What can happen to a group as a whole."""

    REBALANCE_NEEDED = enum.auto()
    GENERATION_STARTED = enum.auto()
    GENERATION_WITHOUT_MEMBERS = enum.auto()
    ASSIGNED = enum.auto()
    REMOVED = enum.auto()


TRANSITIONS: Final[Mapping[GroupState, Mapping[GroupEvent, GroupState]]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.GENERATION_STARTED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.GENERATION_WITHOUT_MEMBERS: GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
        GroupEvent.ASSIGNED: GroupState.STABLE,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE_NEEDED: GroupState.PREPARING_REBALANCE,
    },
    GroupState.DEAD: {},
}
"""state -> event -> state; a pair that is not listed is a bug of ours."""


class UnexpectedEvent(Exception):
    """An event that the table does not list for the group's state."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`. Raises UnexpectedEvent for a pair that is not in the table."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise UnexpectedEvent(f"{event.name} cannot happen to a group that is {state}") from None
