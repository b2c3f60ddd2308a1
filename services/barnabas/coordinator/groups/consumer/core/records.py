"""What the log says of consumer groups (KIP-848), apart from how it is encoded (`consumer.codec`).

A record without a value is a tombstone: the fact no longer holds.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TopicId = bytes
"""The 16 bytes of a topic's id."""

Assignment = Mapping[TopicId, frozenset[int]]
"""Partitions by topic."""

HeldPartitions = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, and of each the epoch in which its member was given it (KIP-1251)."""

NO_TIMEOUT: Final = -1
NO_EPOCH: Final = -1
LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that went away and means to come back."""


class MemberState(enum.IntEnum):
    """Kafka's numbers, as the records have them."""

    STABLE = 0
    """It has what it is to have at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has been asked to give partitions up and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a newer coordinator."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What is known of a member that speaks the classic protocol (KIP-848's online migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, subscription) in the member's order of preference."""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    """Topics subscribed to by name."""
    topic_regex: str = ""
    """The regular expression subscribed to; empty for none."""
    rebalance_timeout_ms: int = NO_TIMEOUT
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    """Of a member that speaks the classic protocol."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """Where a member is on its way to its target."""

    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    """The one before: its answer may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    revoking: HeldPartitions = field(default_factory=dict)
    """What the member is to give up, and holds until it says that it did."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch rises with every change of what members are to have."""

    epoch: int
    metadata_hash: int
    """Over the topics subscribed to; 0 for none."""


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """For which group epoch the target was made, and when, in ms since the epoch; 0 when that is not known."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched, in which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GroupEpochRecord:
    """A group's epoch; None deletes the group."""

    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class SubscriptionMetadataRecord:
    """What Kafka before 4.1 wrote of a group's topics: only that it is there, or None, is of interest."""

    group_id: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member; None deletes it."""

    group_id: str
    member_id: str
    value: MemberMetadata | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """The epoch of a group's target."""

    group_id: str
    value: TargetEpoch | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """What a member is to have."""

    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """What a member has."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class RegexRecord:
    """The topics of a regular expression that members subscribe to."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerRecord = (
    GroupEpochRecord
    | SubscriptionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)
"""One fact about a consumer group."""


def without_epochs(held: HeldPartitions) -> Assignment:
    """The partitions alone."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}
