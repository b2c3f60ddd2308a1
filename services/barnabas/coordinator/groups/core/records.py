"""What the coordinator's log says, apart from how it is encoded (`barnabas.coordinator.groups.schema`).

Two kinds of fact here: the offset that a group committed for a partition, and the generation that a classic group last
agreed on; those about groups of the newer protocol are in `consumer.core.records`. A record without a value is a
tombstone: the fact no longer holds. An offset that is part of a transaction becomes a fact with the marker that commits
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.coordinator.groups.consumer.core.records import ConsumerRecord
from barnabas.coordinator.runtime.core.producers import Producer

NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
TIMESTAMP_MS_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset. Timestamps are in ms since the epoch."""

    offset: int
    """The next record to read."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record read; -1 when the client did not say."""
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    """When the offset expires, if the client asked for a retention of its own (OffsetCommit 2 to 4); else -1."""
    topic_id: bytes = b""
    """Of the topic that it is about, 16 bytes; empty where that is not known, as in records before version 4."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a stored generation. Timeouts are in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata under the protocol that the group chose."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The last generation that the log knows of a group."""

    protocol_type: str
    """Empty for a group that never had members."""
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group entered its state; -1 in records too old to say."""
    members: tuple[StoredMember, ...] = ()


class OffsetKey(NamedTuple):
    """What has at most one committed offset."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's offset for one partition; None deletes it."""

    group_id: str
    topic: str
    partition: int
    value: OffsetAndMetadata | None
    producer: Producer | None = None
    """Of whose transaction it is part; None when it counts at once."""

    @property
    def key(self) -> OffsetKey:
        """What it is about."""
        return OffsetKey(self.group_id, self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group's generation; None deletes the group."""

    group_id: str
    value: StoredGroup | None


@dataclass(frozen=True, slots=True)
class MarkerRecord:
    """The end of a producer's transaction: its offsets count from now on, or never will."""

    producer: Producer
    """With the epoch that it has from now on."""
    committed: bool
    coordinator_epoch: int
    """Of the transaction coordinator in whose name the marker was written."""


GroupLogRecord = OffsetRecord | GroupRecord | MarkerRecord | ConsumerRecord
"""One fact of the log, __consumer_offsets."""
