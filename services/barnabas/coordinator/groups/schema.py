"""Kafka's record schemas of __consumer_offsets, as plain typed data for kio's codecs.

Every key and value starts with its version as an int16, then the fields below (Kafka's OffsetCommitKey,
OffsetCommitValue, GroupMetadataKey, GroupMetadataValue; from version 4 on, values are flexible, KIP-915). Only the
class whose version is written carries the bare name. `codec` turns them into the state machine's own records.
"""

# kio reads the annotations themselves, so they must not be strings: no `from __future__ import annotations` here.
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from kio.static.constants import EntityType
from kio.static.primitive import i16

from barnabas.coordinator.groups.core.records import NO_LEADER_EPOCH, NO_TIMESTAMP

OFFSET_COMMIT_KEY_VERSIONS = (0, 1)
GROUP_METADATA_KEY_VERSION = 2


def _wire(kafka_type: str, **more: Any) -> Any:
    """A dataclass field of the Kafka type given."""
    tag = more.pop("tag", None)
    metadata = {"kafka_type": kafka_type} if tag is None else {"kafka_type": kafka_type, "tag": tag}
    return field(metadata=metadata, **more)


class _Data:
    """What kio asks of every message."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey(_Data):
    """Key versions 0 and 1, which are the same."""

    group: str = _wire("string")
    topic: str = _wire("string")
    partition: int = _wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey(_Data):
    """Key version 2."""

    group: str = _wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV0(_Data):
    """Versions 0 and 2."""

    offset: int = _wire("int64")
    metadata: str = _wire("string")
    commit_timestamp: int = _wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV1(_Data):
    """Version 1: the only one with an expiry of its own; written when a client asks for a retention time."""

    offset: int = _wire("int64")
    metadata: str = _wire("string")
    commit_timestamp: int = _wire("int64")
    expire_timestamp: int = _wire("int64", default=NO_TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue(_Data):
    """Version 3."""

    offset: int = _wire("int64")
    leader_epoch: int = _wire("int32", default=NO_LEADER_EPOCH)
    metadata: str = _wire("string")
    commit_timestamp: int = _wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV4(_Data):
    """Version 4: flexible; Kafka 4.1 added the topic's id."""

    __flexible__: ClassVar[bool] = True
    offset: int = _wire("int64")
    leader_epoch: int = _wire("int32", default=NO_LEADER_EPOCH)
    metadata: str = _wire("string")
    commit_timestamp: int = _wire("int64")
    topic_id: UUID | None = _wire("uuid", tag=0, default=None)  # noqa: RUF009


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV0(_Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = _wire("string")
    client_id: str = _wire("string")
    client_host: str = _wire("string")
    session_timeout: int = _wire("int32")
    subscription: bytes = _wire("bytes")
    assignment: bytes = _wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV1(_Data):
    """Versions 1 and 2."""

    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = _wire("string")
    client_id: str = _wire("string")
    client_host: str = _wire("string")
    rebalance_timeout: int = _wire("int32")
    session_timeout: int = _wire("int32")
    subscription: bytes = _wire("bytes")
    assignment: bytes = _wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata(_Data):
    """Version 3."""

    __type__: ClassVar[EntityType] = EntityType.nested
    member_id: str = _wire("string")
    group_instance_id: str | None = _wire("string", default=None)
    client_id: str = _wire("string")
    client_host: str = _wire("string")
    rebalance_timeout: int = _wire("int32")
    session_timeout: int = _wire("int32")
    subscription: bytes = _wire("bytes")
    assignment: bytes = _wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataV4(_Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = True
    member_id: str = _wire("string")
    group_instance_id: str | None = _wire("string", default=None)
    client_id: str = _wire("string")
    client_host: str = _wire("string")
    rebalance_timeout: int = _wire("int32")
    session_timeout: int = _wire("int32")
    subscription: bytes = _wire("bytes")
    assignment: bytes = _wire("bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV0(_Data):
    protocol_type: str = _wire("string")
    generation: int = _wire("int32")
    protocol: str | None = _wire("string")
    leader: str | None = _wire("string")
    members: tuple[MemberMetadataV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV1(_Data):
    protocol_type: str = _wire("string")
    generation: int = _wire("int32")
    protocol: str | None = _wire("string")
    leader: str | None = _wire("string")
    members: tuple[MemberMetadataV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV2(_Data):
    protocol_type: str = _wire("string")
    generation: int = _wire("int32")
    protocol: str | None = _wire("string")
    leader: str | None = _wire("string")
    current_state_timestamp: int = _wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadataV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue(_Data):
    """Version 3."""

    protocol_type: str = _wire("string")
    generation: int = _wire("int32")
    protocol: str | None = _wire("string")
    leader: str | None = _wire("string")
    current_state_timestamp: int = _wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV4(_Data):
    __flexible__: ClassVar[bool] = True
    protocol_type: str = _wire("string")
    generation: int = _wire("int32")
    protocol: str | None = _wire("string")
    leader: str | None = _wire("string")
    current_state_timestamp: int = _wire("int64", default=NO_TIMESTAMP)
    members: tuple[MemberMetadataV4, ...]
