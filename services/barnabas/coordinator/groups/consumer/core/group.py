"""A consumer group as the log says, and what is counted of its members."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.coordinator.groups.consumer.core.records import (
    LEFT_FOR_A_WHILE,
    NO_EPOCH,
    Assignment,
    CurrentAssignment,
    HeldPartitions,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TargetEpoch,
)

FIRST_EPOCH: Final = 1
"""Of a group of which nothing is known yet, and of its target: nobody is to have anything."""
NOTHING: Final[Assignment] = {}


class ConsumerGroupState(enum.StrEnum):
    """Kafka's names, as descriptions and lists show them. What moves a group from one to the next is counted rather
    than told: see `ConsumerGroup.state`."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    ASSIGNING = "Assigning"
    """The target is older than what members last asked for."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target."""
    STABLE = "Stable"
    """Every member has what it is to have."""
    DEAD = "Dead"
    """There is no such group."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member at one moment."""

    member_id: str
    metadata: MemberMetadata = field(default_factory=MemberMetadata)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.metadata.classic is not None

    @property
    def has_left_for_a_while(self) -> bool:
        return self.current.epoch == LEFT_FOR_A_WHILE

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has all of the target of that epoch, and nothing else."""
        return self.current.state is MemberState.STABLE and self.current.epoch == target_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """In which epoch it was given a partition that it holds; None for one that it does not."""
        epoch = self.current.assigned.get(topic_id, {}).get(partition)
        return self.current.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


@dataclass(slots=True)
class Resolution:
    """Regular expressions on their way to topics."""

    version: int
    """Of the metadata that `names` are from."""
    names: Sequence[str]
    """Of all topics."""
    pending: list[str]
    """The last one is being matched."""
    looked_at: int = 0
    """How many of `names` it was matched with."""
    matched: set[str] = field(default_factory=set)
    """Those that it fits."""
    resolved: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Subscription:
    """Topics that so many members subscribe to by their names."""

    topic_names: frozenset[str]
    members: int = 0


class ConsumerGroup:
    """Owns what the log says of one group. Only replaying records changes it, but for `needs_refresh` and
    `resolution`, which a new coordinator starts afresh.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = TargetEpoch(FIRST_EPOCH)
        self.targets: dict[str, Assignment] = {}
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id -> member id."""
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_subscription_metadata = False
        """Whether the log has a record of Kafka before 4.1 that is to be deleted."""
        self.topic_names: Counter[str] = Counter()
        """How many members subscribe to each topic by its name."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe to each regular expression."""
        self.assignors: Counter[str] = Counter()
        """How many members ask for each assignor."""
        self.classic_protocols: Counter[str] = Counter()
        """How many of the members that speak the classic protocol support each assignor of theirs."""
        self.classic_count = 0
        self.needs_refresh = True
        """Whether the metadata of its topics may have changed since it was last looked at."""
        self.resolution: Resolution | None = None
        """The look for topics that match its regular expressions, while it is under way."""
        self._holders: dict[bytes, dict[int, str]] = {}
        self._subscriptions: dict[frozenset[str], _Subscription] = {}

    @property
    def state(self) -> ConsumerGroupState:
        """Found by looking at all members, so for lists and descriptions only."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch.epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """Who has the instance id, if anybody."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Assignment:
        """What the member is to have."""
        return self.targets.get(member_id, NOTHING)

    def holder_of(self, topic_id: bytes, partition: int) -> str | None:
        """The member that has the partition, or has not given it up yet."""
        return self._holders.get(topic_id, {}).get(partition)

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """All topics that a member subscribes to, as far as its regular expression is resolved."""
        regex = self.resolved.get(metadata.topic_regex) if metadata.topic_regex else None
        return metadata.topic_names if regex is None else metadata.topic_names | regex.topics

    def subscribed_topics(
        self, without: Iterable[Member] = (), with_member: Member | None = None
    ) -> frozenset[str]:
        """The topics that members subscribe to: all of them, or all but some and one that is new or has changed."""
        names, regexes = Counter(self.topic_names), Counter(self.regexes)
        for member in without:
            names.subtract(member.metadata.topic_names)
            regexes.subtract((member.metadata.topic_regex,))
        if with_member is not None:
            names.update(with_member.metadata.topic_names)
            regexes.update((with_member.metadata.topic_regex,))
        topics = {name for name, count in names.items() if count > 0}
        for regex, count in regexes.items():
            if count > 0 and regex in self.resolved:
                topics |= self.resolved[regex].topics
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member reads the topic."""
        return topic in self.topic_names or any(topic in regex.topics for regex in self.resolved.values())

    def preferred_assignor(self, before: Member | None, after: Member) -> str | None:
        """The assignor that most members ask for once `after` is in the place of `before`; None when nobody does."""
        votes = Counter(self.assignors)
        if before is not None and before.metadata.server_assignor is not None:
            votes[before.metadata.server_assignor] -= 1
        if after.metadata.server_assignor is not None:
            votes[after.metadata.server_assignor] += 1
        name, count = votes.most_common(1)[0] if votes else ("", 0)
        return name if count > 0 else None

    def supports_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can be in the group together with those of its kind."""
        if protocol_type != "consumer" or not names:
            return False
        return not self.members or any(self.classic_protocols[name] == self.classic_count for name in names)

    def waits_for_others(self, member: Member) -> bool:
        """Whether something that the member is to have is still held by somebody."""
        if member.current.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.current.assigned.get(topic_id, {})
            and self.holder_of(topic_id, partition) is not None
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    # -- what replaying does ------------------------------------------------------------------------------------

    def put_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        """A member came, or says something else of itself."""
        before = self.members.get(member_id)
        metadata = self._shared(metadata)
        if before is not None:
            self._count(before.metadata, -1)
            self._forget_instance(before)
        self._count(metadata, 1)
        self.members[member_id] = (
            Member(member_id, metadata) if before is None else replace(before, metadata=metadata)
        )
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id

    def remove_member(self, member_id: str) -> None:
        """A member is out."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member.metadata, -1)
        self._let_go(member)
        self._forget_instance(member)

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        """A member holds something else."""
        before = self.members.get(member_id)
        if before is None:
            # Compaction has left what it holds before what it says of itself.
            before = Member(member_id)
            self._count(before.metadata, 1)
        self._let_go(before)
        after = self.members[member_id] = replace(before, current=current)
        for held in (current.assigned, current.revoking):
            self._hold(after.member_id, held)

    def clear_current(self, member_id: str) -> None:
        """A member holds nothing; it is about to be removed."""
        if member_id in self.members:
            self.put_current(member_id, CurrentAssignment(NO_EPOCH, NO_EPOCH))

    def _hold(self, member_id: str, held: HeldPartitions) -> None:
        for topic_id, partitions in held.items():
            self._holders.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _let_go(self, member: Member) -> None:
        """Forget what the member held. Another may have been given it since, by a record that compaction left further
        to the front."""
        for held in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in held.items():
                holders = self._holders.get(topic_id, {})
                for partition in partitions:
                    if holders.get(partition) == member.member_id:
                        del holders[partition]
                if not holders:
                    self._holders.pop(topic_id, None)

    def _shared(self, metadata: MemberMetadata) -> MemberMetadata:
        """The same, with the set of topics of a member that subscribes alike: a thousand members with a thousand topics
        each would else have a million names."""
        known = self._subscriptions.get(metadata.topic_names)
        if known is None or known.topic_names is metadata.topic_names:
            return metadata
        return replace(metadata, topic_names=known.topic_names)

    def _forget_instance(self, member: Member) -> None:
        """The instance id is the member's no more; it may be another's already."""
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _count(self, metadata: MemberMetadata, change: int) -> None:
        names = metadata.topic_names
        _add(self.topic_names, dict.fromkeys(names, change))
        subscription = self._subscriptions.setdefault(names, _Subscription(names))
        subscription.members += change
        if not subscription.members:
            del self._subscriptions[names]
        if metadata.topic_regex:
            _add(self.regexes, {metadata.topic_regex: change})
        if metadata.server_assignor is not None:
            _add(self.assignors, {metadata.server_assignor: change})
        if metadata.classic is not None:
            self.classic_count += change
            _add(self.classic_protocols, {name: change for name, _ in metadata.classic.protocols})


def _add(counts: Counter[str], changes: Mapping[str, int]) -> None:
    """Change the counts; what comes to nothing is not there."""
    for name, change in changes.items():
        counts[name] += change
        if not counts[name]:
            del counts[name]
