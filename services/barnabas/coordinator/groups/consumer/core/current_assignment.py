"""One step of a member towards its target (KIP-848): what it gives up, what it waits for, what it gets.

| state | when | next |
|---|---|---|
| STABLE | at the epoch of the target | nothing, or what it no longer subscribes to is taken back |
| STABLE | at another | the target |
| UNREVOKED_PARTITIONS | it has not said that it gave everything up | stays, at its epoch |
| UNREVOKED_PARTITIONS | it has | the target |
| UNRELEASED_PARTITIONS | | the target |
| UNKNOWN | it says that it has nothing | the target |

"The target" means: first what is not in it is given up, which keeps the member where it is until it says so; then it
is at the target's epoch, and gets what nobody else holds any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordinator.groups.consumer.core.group import Member
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    CurrentAssignment,
    HeldPartitions,
    MemberState,
)
from barnabas.kernel.errors import ErrorCode, KafkaError

_NO_PARTITIONS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a member's next step depends on."""

    target_epoch: int
    target: Assignment
    subscribed: frozenset[bytes]
    """Ids of the topics that it subscribes to now."""
    has_subscription_changed: bool
    """Whether that is news."""
    owned: Assignment | None
    """What the member says that it has; None when it says nothing."""
    holder_of: Callable[[bytes, int], str | None]
    """Who has a partition, or has not given it up yet."""

    def next(self, member: Member) -> CurrentAssignment:
        """Where the member is now; the same object when nothing changes.

        Raises KafkaError FENCED_MEMBER_EPOCH where nothing is known of a member that may have partitions.
        """
        current = member.current
        match current.state:
            case MemberState.STABLE:
                if current.epoch != self.target_epoch:
                    return self._towards_target(member, current.epoch)
                return self._without_unsubscribed(current) if self.has_subscription_changed else current
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._owns_some_of(current.revoking):
                    return self._towards_target(member, current.epoch)
                return self._without_unsubscribed(current) if self.has_subscription_changed else current
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(member, current.epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or any(self.owned.values()):
                    raise KafkaError(
                        ErrorCode.fenced_member_epoch,
                        "The state of the member is not known: give up all partitions and join again.",
                    )
                return self._towards_target(member, self.target_epoch)

    def _owns_some_of(self, held: HeldPartitions) -> bool:
        """Whether the member has, or may have, some of them."""
        if self.owned is None:
            return True
        return any(
            not partitions.isdisjoint(held[topic_id])
            for topic_id, partitions in self.owned.items()
            if topic_id in held
        )

    def _without_unsubscribed(self, current: CurrentAssignment) -> CurrentAssignment:
        """Take back what the member does not subscribe to any more; it stays at its epoch."""
        gone = {
            topic_id: partitions
            for topic_id, partitions in current.assigned.items()
            if topic_id not in self.subscribed
        }
        if not gone:
            return current
        assigned = {
            topic_id: partitions for topic_id, partitions in current.assigned.items() if topic_id not in gone
        }
        revoking = {topic_id: dict(partitions) for topic_id, partitions in current.revoking.items()}
        for topic_id, partitions in gone.items():
            revoking.setdefault(topic_id, {}).update(partitions)
        if self._owns_some_of(revoking):
            state = MemberState.UNREVOKED_PARTITIONS
            return CurrentAssignment(current.epoch, current.epoch, state, assigned, revoking)
        return CurrentAssignment(current.epoch, current.epoch, current.state, assigned, current.revoking)

    def _towards_target(self, member: Member, epoch: int) -> CurrentAssignment:
        kept: dict[bytes, dict[int, int]] = {}
        revoking: dict[bytes, dict[int, int]] = {}
        for topic_id, partitions in member.current.assigned.items():
            target = self._target_of(topic_id)
            for partition, given_in in partitions.items():
                place = kept if partition in target else revoking
                place.setdefault(topic_id, {})[partition] = given_in
        if revoking and self._owns_some_of(revoking):
            state = MemberState.UNREVOKED_PARTITIONS
            return CurrentAssignment(epoch, member.epoch, state, kept, revoking)
        state = MemberState.STABLE
        for topic_id in self.target:
            held, its_own = kept.get(topic_id, {}), member.current.revoking.get(topic_id, {})
            for partition in sorted(self._target_of(topic_id).difference(held)):
                if partition in its_own or self.holder_of(topic_id, partition) is None:
                    kept.setdefault(topic_id, {})[partition] = self.target_epoch
                else:
                    state = MemberState.UNRELEASED_PARTITIONS
        return CurrentAssignment(self.target_epoch, member.epoch, state, kept)

    def _target_of(self, topic_id: bytes) -> frozenset[int]:
        """A topic that the member does not subscribe to now counts as not being in its target."""
        if topic_id not in self.subscribed:
            return _NO_PARTITIONS
        return self.target.get(topic_id, _NO_PARTITIONS)
