"""Kafka's record schemas of __consumer_offsets, as plain typed data for kio's codecs.

Every key and value starts with its version as an int16, then the fields below (Kafka's OffsetCommitKey,
OffsetCommitValue, GroupMetadataKey, GroupMetadataValue; from version 4 on, values are flexible, KIP-915). Only the
class whose version is written carries the bare name. `codec` turns them into the state machine's own records.
"""

# kio reads the annotations themselves, so they must not be strings: no `from __future__ import annotations` here.
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from kio.static.constants import EntityType

from barnabas.coordinator.groups.core.records import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.coordinator.runtime.record_schema import Data, wire

OFFSET_COMMIT_KEY_VERSIONS = (0, 1)
GROUP_METADATA_KEY_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey(Data):
    """Key versions 0 and 1, which are the same."""

    group: str = wire("string")
    topic: str = wire("string")
    partition: int = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey(Data):
    """Key version 2."""

    group: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV0(Data):
    """Versions 0 and 2."""

    offset: int = wire("int64")
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV1(Data):
    """Version 1: the only one with an expiry of its own; written when a client asks for a retention time."""

    offset: int = wire("int64")
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")
    expire_timestamp: int = wire("int64", default=NO_TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV3(Data):
    """Version 3."""

    offset: int = wire("int64")
    leader_epoch: int = wire("int32", default=NO_LEADER_EPOCH)
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue(Data):
    """Version 4: flexible; Kafka 4.1 added the topic's id."""

    __flexible__: ClassVar[bool] = True
    offset: int = wire("int64")
    leader_epoch: int = wire("int32", default=NO_LEADER_EPOCH)
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")
    topic_id: UUID | None = wire("uuid", tag=0, default=None)  # noqa: RUF009


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV0(Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = wire("string")
    client_id: str = wire("string")
    client_host: str = wire("string")
    session_timeout: int = wire("int32")
    subscription: bytes = wire("bytes")
    assignment: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV1(Data):
    """Versions 1 and 2."""

    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = wire("string")
    client_id: str = wire("string")
    client_host: str = wire("string")
    rebalance_timeout: int = wire("int32")
    session_timeout: int = wire("int32")
    subscription: bytes = wire("bytes")
    assignment: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata(Data):
    """Version 3."""

    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", default=None)
    client_id: str = wire("string")
    client_host: str = wire("string")
    rebalance_timeout: int = wire("int32")
    session_timeout: int = wire("int32")
    subscription: bytes = wire("bytes")
    assignment: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV4(Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = True
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", default=None)
    client_id: str = wire("string")
    client_host: str = wire("string")
    rebalance_timeout: int = wire("int32")
    session_timeout: int = wire("int32")
    subscription: bytes = wire("bytes")
    assignment: bytes = wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV0(Data):
    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string")
    leader: str | None = wire("string")
    members: tuple[MemberMetadataV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV1(Data):
    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string")
    leader: str | None = wire("string")
    members: tuple[MemberMetadataV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV2(Data):
    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string")
    leader: str | None = wire("string")
    current_state_timestamp: int = wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadataV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue(Data):
    """Version 3."""

    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string")
    leader: str | None = wire("string")
    current_state_timestamp: int = wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV4(Data):
    __flexible__: ClassVar[bool] = True
    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string")
    leader: str | None = wire("string")
    current_state_timestamp: int = wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadataV4, ...]
