"""Faults to be planted into groups of KIP-848: see `planted_faults`, which has them all."""

from __future__ import annotations

from typing import Any, Final

from barnabas.coordinator.groups.consumer.core import conversion, deadlines
from barnabas.coordinator.groups.consumer.core.current_assignment import Reconciliation
from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.coordinator.groups.consumer.core.records import CurrentAssignment, MemberState
from barnabas.coordinator.groups.core import commit
from barnabas.coordinator.groups.core import deadlines as all_deadlines
from barnabas.coordinator.groups.core.timers import DeadlineKind
from barnabas.kernel.errors import ErrorCode


def nobody(_: Any) -> Any:
    """What the target says is a member's is free for it."""
    return lambda _self, _topic_id, _partition: None


def given_up_when_told(_: Any) -> Any:
    """Whoever was told to give something up has done so, one might think."""
    return lambda _self, _held: False


def as_if_new(bring_to_life: Any) -> Any:
    """Members begin anew with a coordinator that has read the log."""

    def instead(shard: Any, group: ConsumerGroup, decision: Any) -> None:
        for member_id, member in list(group.members.items()):
            if not member.has_left_for_a_while:
                group.put_current(
                    member_id, CurrentAssignment(0, 0, MemberState.STABLE, member.current.assigned)
                )
        bring_to_life(shard, group, decision)

    return instead


def from_anybody(_: Any) -> Any:
    """A commit is a commit, whoever sent it and in which epoch."""
    return lambda _group, _request: ErrorCode.none


def nothing_yet(_: Any) -> Any:
    """Members of the classic protocol will be told what they have."""
    return lambda _data: ({}, b"")


def from_the_first_generation(downgraded: Any) -> Any:
    """A classic group that has just been made has had no generation."""

    def instead(*arguments: Any) -> Any:
        group = downgraded(*arguments)
        group.generation = 0
        return group

    return instead


def nobody_is_silent(overdue: Any) -> Any:
    """Members leave when they go."""

    def instead(group: ConsumerGroup, deadline: Any) -> Any:
        return None if deadline.kind is DeadlineKind.CONSUMER_SESSION else overdue(group, deadline)

    return instead


def still_there(_: Any) -> Any:
    """Whoever has an instance id keeps it until his session is over."""
    return property(lambda _self: False)


IN_GROUPS: Final[dict[str, tuple[Any, ...]]] = {
    "give-what-another-still-has": (ConsumerGroup, "holder_of", nobody, 17, 1, "TWO OWNERS"),
    "take-revoked-for-given-up": (Reconciliation, "_owns_some_of", given_up_when_told, 17, 1, "TWO OWNERS"),
    "forget-member-epochs-at-failover": (
        *(all_deadlines, "bring_to_life", as_if_new, 17, 1),
        "has not deserved it",
    ),
    "take-commits-of-former-members": (commit, "commit_refusal", from_anybody, 52, 1, "owned it"),
    "upgrade-without-assignments": (conversion, "read_assignment", nothing_yet, 80, 1, "TWO OWNERS"),
    "downgrade-to-the-first-generation": (
        *(conversion, "_downgraded", from_the_first_generation, 101, 1),
        "was told that it is in epoch",
    ),
    "keep-the-id-of-an-instance-that-left": (
        *(Member, "has_left_for_a_while", still_there, 17, 1),
        "who had it has left",
    ),
    "never-fence-the-silent": (deadlines, "_overdue", nobody_is_silent, 17, 1, "migrating"),
}
"""As `planted_faults.Plant` has them."""
