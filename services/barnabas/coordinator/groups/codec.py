"""Between the state machine's records and the bytes of __consumer_offsets.

Written versions are Kafka 4's: keys 1 and 2, values 4 and 3 (offsets with a retention of their own: 1). Read are all
that Kafka ever wrote. Records of groups of the newer protocol are `consumer.codec`'s.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from kio.serial import entity_reader
from kio.serial.errors import DecodeError

from barnabas.coordinator.groups import schema
from barnabas.coordinator.groups.consumer.codec import (
    KEY_TYPES,
    decode_consumer_record,
    encode_consumer_record,
)
from barnabas.coordinator.groups.consumer.core.records import ConsumerRecord
from barnabas.coordinator.groups.core.records import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetRecord,
    StoredGroup,
    StoredMember,
)
from barnabas.coordinator.runtime.core.producers import PLAIN, BatchHead, Producer
from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.record_schema import VERSION, write_versioned
from barnabas.records.batch import BatchHeader, crc_is_valid, parse_header
from barnabas.records.control import decode_marker, encode_marker_record
from barnabas.records.record import decode_records

OFFSET_KEY_VERSION_WRITTEN: Final = 1
OFFSET_VALUE_VERSION_WRITTEN: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION_WRITTEN: Final = 3

_OFFSET_VALUES: Final[Mapping[int, type[Any]]] = {
    0: schema.OffsetCommitValueV0,
    1: schema.OffsetCommitValueV1,
    2: schema.OffsetCommitValueV0,
    3: schema.OffsetCommitValueV3,
    4: schema.OffsetCommitValue,
}
_GROUP_VALUES: Final[Mapping[int, type[Any]]] = {
    0: schema.GroupMetadataValueV0,
    1: schema.GroupMetadataValueV1,
    2: schema.GroupMetadataValueV2,
    3: schema.GroupMetadataValue,
    4: schema.GroupMetadataValueV4,
}


def encode_record(record: GroupLogRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value is None for a tombstone."""
    if isinstance(record, OffsetRecord):
        key = schema.OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        value = None if record.value is None else _encode_offset(record.value)
        return write_versioned(OFFSET_KEY_VERSION_WRITTEN, key), value
    if isinstance(record, MarkerRecord):
        return encode_marker_record(committed=record.committed, coordinator_epoch=record.coordinator_epoch)
    if not isinstance(record, GroupRecord):
        return encode_consumer_record(record)
    group_key = write_versioned(
        schema.GROUP_METADATA_KEY_VERSION, schema.GroupMetadataKey(group=record.group_id)
    )
    if record.value is None:
        return group_key, None
    return group_key, write_versioned(GROUP_VALUE_VERSION_WRITTEN, _group_entity(record.value))


def head_of(record: GroupLogRecord) -> BatchHead:
    """Under which producer the record is written."""
    if isinstance(record, OffsetRecord):
        return PLAIN if record.producer is None else BatchHead(record.producer)
    if isinstance(record, MarkerRecord):
        return BatchHead(record.producer, is_control=True)
    return PLAIN


def decode_record(
    key: bytes | None, value: bytes | None, producer: Producer | None = None
) -> OffsetRecord | GroupRecord | ConsumerRecord | None:
    """The record, or None for a kind that this coordinator does not know and leaves alone; `producer` is that of whose
    transaction its batch is part.

    Raises UnreadableRecord where the kind is known and the rest is not.
    """
    if key is None or len(key) < VERSION.size:
        return None
    (key_version,) = VERSION.unpack_from(key)
    try:
        if key_version in schema.OFFSET_COMMIT_KEY_VERSIONS:
            offset_key, _ = entity_reader(schema.OffsetCommitKey)(key, VERSION.size)
            committed = None if value is None else _offset_of(_read(_OFFSET_VALUES, value))
            return OffsetRecord(offset_key.group, offset_key.topic, offset_key.partition, committed, producer)
        if key_version == schema.GROUP_METADATA_KEY_VERSION:
            group_key, _ = entity_reader(schema.GroupMetadataKey)(key, VERSION.size)
            stored = None if value is None else _group_of(_read(_GROUP_VALUES, value))
            return GroupRecord(group_key.group, stored)
        if key_version in KEY_TYPES:
            return decode_consumer_record(key_version, key, value)
    except (DecodeError, ValueError, KeyError, struct.error) as error:
        raise UnreadableRecord(f"record with key version {key_version}: {error}") from error
    return None


def decode_batch(batch: memoryview) -> Iterator[GroupLogRecord]:
    """The records of one batch that this coordinator knows. Raises UnreadableRecord, and KafkaError as
    `barnabas.records.record.decode_records` does."""
    header = parse_header(batch)
    if not crc_is_valid(batch):  # nobody has looked since it was appended, and disks may rot
        raise UnreadableRecord(f"the record batch at offset {header.base_offset} is damaged")
    if header.is_control:
        marker = decode_marker(batch)
        if marker is not None:
            yield MarkerRecord(_producer_of(header), marker.committed, marker.coordinator_epoch)
        return
    producer = _producer_of(header) if header.is_transactional else None
    for record in decode_records(batch):
        decoded = decode_record(record.key, record.value, producer)
        if decoded is not None:
            yield decoded


def _producer_of(header: BatchHeader) -> Producer:
    return Producer(header.producer_id, header.producer_epoch)


def _read(versions: Mapping[int, type[Any]], value: bytes) -> Any:
    (version,) = VERSION.unpack_from(value)
    entity_type = versions.get(version)
    if entity_type is None:
        raise UnreadableRecord(f"value version {version} is newer than this coordinator")
    entity, _ = entity_reader(entity_type)(value, VERSION.size)
    return entity


def _encode_offset(value: OffsetAndMetadata) -> bytes:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        with_expiry = schema.OffsetCommitValueV1(
            offset=value.offset,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp_ms,
            expire_timestamp=value.expire_timestamp_ms,
        )
        return write_versioned(OFFSET_VALUE_VERSION_WITH_EXPIRY, with_expiry)
    entity = schema.OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        topic_id=UUID(bytes=value.topic_id) if value.topic_id else None,
    )
    return write_versioned(OFFSET_VALUE_VERSION_WRITTEN, entity)


def _offset_of(entity: Any) -> OffsetAndMetadata:
    topic_id = getattr(entity, "topic_id", None)
    return OffsetAndMetadata(
        offset=entity.offset,
        leader_epoch=getattr(entity, "leader_epoch", NO_LEADER_EPOCH),
        metadata=entity.metadata,
        commit_timestamp_ms=entity.commit_timestamp,
        expire_timestamp_ms=getattr(entity, "expire_timestamp", NO_TIMESTAMP),
        topic_id=b"" if topic_id is None else topic_id.bytes,
    )


def _group_entity(value: StoredGroup) -> schema.GroupMetadataValue:
    members = tuple(
        schema.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.subscription,
            assignment=member.assignment,
        )
        for member in value.members
    )
    return schema.GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.state_timestamp_ms,
        members=members,
    )


def _group_of(entity: Any) -> StoredGroup:
    members = tuple(
        StoredMember(
            member_id=member.member_id,
            group_instance_id=getattr(member, "group_instance_id", None),
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=_rebalance_timeout_of(member),
            session_timeout_ms=member.session_timeout,
            subscription=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in entity.members
    )
    return StoredGroup(
        protocol_type=entity.protocol_type,
        generation=entity.generation,
        protocol=entity.protocol,
        leader=entity.leader,
        state_timestamp_ms=getattr(entity, "current_state_timestamp", NO_TIMESTAMP),
        members=members,
    )


def _rebalance_timeout_of(member: Any) -> int:
    """Records from before there was one, or without one (-1), mean the session timeout."""
    timeout = getattr(member, "rebalance_timeout", -1)
    return int(member.session_timeout if timeout == -1 else timeout)
