"""Between records of consumer groups and the bytes of __consumer_offsets.

Keys are an int16 that says what they are about, then the group's id and the member's or the regular expression (not
flexible); values are version 0, flexible. The layouts are Kafka's:

| key | Kafka's name | value; tN is the tagged field N |
|---|---|---|
| 3 | ConsumerGroupMetadata | epoch; t0 metadata hash |
| 4 | ConsumerGroupPartitionMetadata | (only deleted) |
| 5 | ConsumerGroupMemberMetadata | what the member says of itself; t0 its classic protocols |
| 6 | ConsumerGroupTargetAssignmentMetadata | epoch; t0 timestamp |
| 7 | ConsumerGroupTargetAssignmentMember | partitions by topic |
| 8 | ConsumerGroupCurrentMemberAssignment | epochs, state, assigned, pending revocation; t0 of each topic: epochs |
| 16 | ConsumerGroupRegularExpression | topics, version of the metadata, timestamp |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    HeldPartitions,
    MemberMetadata,
    MemberRecord,
    MemberState,
    RegexRecord,
    ResolvedRegex,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.record_reader import RecordReader
from barnabas.coordinator.runtime.record_writer import RecordWriter, write_key

KEY_TYPES: Final = frozenset((3, 4, 5, 6, 7, 8, 16))
VALUE_VERSION: Final = 0

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_TOPIC_ID: Final = struct.Struct(">16s")
_CURRENT: Final = struct.Struct(">iib")
_RESOLVED: Final = struct.Struct(">qq")
_ONLY_TAG: Final = 0
_IS_THERE: Final = struct.Struct(">b")
_NULL: Final = b"\x00"
"""What a structure begins with that may be null: this, and nothing else, where it is."""


class TooLarge(Exception):
    """A record that no batch could have."""


def encode_consumer_record(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value is None for a tombstone. Raises TooLarge."""
    key = _key_of(record)
    if record.value is None:
        return key, None
    if isinstance(record, SubscriptionMetadataRecord):
        return key, record.value
    writer = RecordWriter()
    writer.pack(_INT16, VALUE_VERSION)
    match record:
        case GroupEpochRecord(value=epoch) if epoch is not None:
            writer.pack(_INT32, epoch.epoch)
            writer.tagged({_ONLY_TAG: _INT64.pack(epoch.metadata_hash)} if epoch.metadata_hash else None)
        case MemberRecord(value=metadata) if metadata is not None:
            _write_member(writer, metadata)
        case TargetEpochRecord(value=target_epoch) if target_epoch is not None:
            writer.pack(_INT32, target_epoch.epoch)
            at_ms = target_epoch.timestamp_ms
            writer.tagged({_ONLY_TAG: _INT64.pack(at_ms)} if at_ms else None)
        case TargetRecord(value=target) if target is not None:
            _write_target(writer, target)
        case CurrentRecord(value=current) if current is not None:
            writer.pack(_CURRENT, current.epoch, current.previous_epoch, current.state)
            _write_held(writer, current.assigned)
            _write_held(writer, current.revoking)
            writer.tagged()
        case RegexRecord(value=resolved) if resolved is not None:
            _write_texts(writer, sorted(resolved.topics))
            writer.pack(_RESOLVED, resolved.version, resolved.timestamp_ms)
            writer.tagged()
    value = writer.finish()
    if len(key) + len(value) > limits.GROUP_RECORD_BYTES_MAX:
        raise TooLarge(f"a record of {len(key) + len(value)} bytes for the group {record.group_id}")
    return key, value


def _key_of(record: ConsumerRecord) -> bytes:
    match record:
        case GroupEpochRecord():
            return write_key(3, record.group_id)
        case SubscriptionMetadataRecord():
            return write_key(4, record.group_id)
        case MemberRecord():
            return write_key(5, record.group_id, record.member_id)
        case TargetEpochRecord():
            return write_key(6, record.group_id)
        case TargetRecord():
            return write_key(7, record.group_id, record.member_id)
        case CurrentRecord():
            return write_key(8, record.group_id, record.member_id)
        case RegexRecord():
            return write_key(16, record.group_id, record.regex)


def _write_member(writer: RecordWriter, metadata: MemberMetadata) -> None:
    writer.string(metadata.instance_id)
    writer.string(metadata.rack_id)
    writer.string(metadata.client_id)
    writer.string(metadata.client_host)
    _write_texts(writer, sorted(metadata.topic_names))
    writer.string(metadata.topic_regex)
    writer.pack(_INT32, metadata.rebalance_timeout_ms)
    writer.string(metadata.server_assignor)
    # Written also where it is null, as Kafka does.
    writer.tagged({_ONLY_TAG: _NULL if metadata.classic is None else _classic_bytes(metadata.classic)})


def _classic_bytes(classic: ClassicMetadata) -> bytes:
    writer = RecordWriter()
    writer.pack(_IS_THERE, 1)
    writer.pack(_INT32, classic.session_timeout_ms)
    writer.array_length(len(classic.protocols))
    for name, metadata in classic.protocols:
        writer.string(name)
        writer.byte_array(metadata)
        writer.tagged()
    writer.tagged()
    return writer.finish()


def _write_texts(writer: RecordWriter, texts: Collection[str]) -> None:
    writer.array_length(len(texts))
    for text in texts:
        writer.string(text)


def _write_target(writer: RecordWriter, target: Assignment) -> None:
    writer.array_length(len(target))
    for topic_id, partitions in sorted(target.items()):
        writer.pack(_TOPIC_ID, topic_id)
        writer.int32s(sorted(partitions))
        writer.tagged()
    writer.tagged()


def _write_held(writer: RecordWriter, held: HeldPartitions) -> None:
    writer.array_length(len(held))
    for topic_id, partitions in sorted(held.items()):
        numbers = sorted(partitions)
        writer.pack(_TOPIC_ID, topic_id)
        writer.int32s(numbers)
        epochs = RecordWriter()
        epochs.int32s([partitions[number] for number in numbers])
        writer.tagged({_ONLY_TAG: epochs.finish()})


# -- reading -------------------------------------------------------------------------------------------------


def decode_consumer_record(key_type: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """The record with a key of one of KEY_TYPES. Raises UnreadableRecord."""
    keys = RecordReader(key)
    keys.int16()
    group_id = keys.string()
    if key_type == 4:
        return SubscriptionMetadataRecord(group_id, value)
    if key_type == 3:
        return GroupEpochRecord(group_id, _read(value, _read_epoch))
    if key_type == 6:
        return TargetEpochRecord(group_id, _read(value, _read_target_epoch))
    name = keys.string()
    if key_type == 5:
        return MemberRecord(group_id, name, _read(value, _read_member))
    if key_type == 7:
        return TargetRecord(group_id, name, _read(value, _read_target))
    if key_type == 8:
        return CurrentRecord(group_id, name, _read(value, _read_current))
    return RegexRecord(group_id, name, _read(value, _read_resolved))


def _read(value: bytes | None, read: Callable[[RecordReader], Any]) -> Any:
    if value is None:
        return None
    reader = RecordReader(value)
    version = reader.int16()
    if version != VALUE_VERSION:
        raise UnreadableRecord(f"value version {version} is newer than this coordinator")
    reader.is_flexible = True
    return read(reader)


def _read_epoch(reader: RecordReader) -> GroupEpoch:
    (epoch,) = reader.unpack(_INT32)
    return GroupEpoch(epoch, _tagged_int64(reader.tagged()))


def _read_target_epoch(reader: RecordReader) -> TargetEpoch:
    (epoch,) = reader.unpack(_INT32)
    return TargetEpoch(epoch, _tagged_int64(reader.tagged()))


def _tagged_int64(tagged: Mapping[int, bytes]) -> int:
    data = tagged.get(_ONLY_TAG)
    if data is None:
        return 0
    value: int = RecordReader(data).unpack(_INT64)[0]
    return value


def _read_member(reader: RecordReader) -> MemberMetadata:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    regex = reader.nullable_string() or ""
    (rebalance_timeout_ms,) = reader.unpack(_INT32)
    assignor = reader.nullable_string()
    classic = reader.tagged().get(_ONLY_TAG)
    return MemberMetadata(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=topics,
        topic_regex=regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=assignor,
        classic=None if classic is None else _read_classic(classic),
    )


def _read_classic(data: bytes) -> ClassicMetadata | None:
    reader = RecordReader(data)
    reader.is_flexible = True
    (is_there,) = reader.unpack(_IS_THERE)
    if not is_there:
        return None
    (session_timeout_ms,) = reader.unpack(_INT32)
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append((reader.string(), reader.byte_array()))
        reader.tagged()
    return ClassicMetadata(session_timeout_ms, tuple(protocols))


def _read_target(reader: RecordReader) -> Assignment:
    target = {}
    for _ in range(reader.array_length()):
        (topic_id,) = reader.unpack(_TOPIC_ID)
        target[topic_id] = frozenset(reader.int32s())
        reader.tagged()
    reader.tagged()
    return target


def _read_current(reader: RecordReader) -> CurrentAssignment:
    epoch, previous_epoch, number = reader.unpack(_CURRENT)
    state = MemberState(number) if number in MemberState.__members__.values() else MemberState.UNKNOWN
    assigned = _read_held(reader, epoch)
    revoking = _read_held(reader, epoch)
    reader.tagged()
    return CurrentAssignment(epoch, previous_epoch, state, assigned, revoking)


def _read_held(reader: RecordReader, epoch: int) -> HeldPartitions:
    """Records from before KIP-1251 say no epochs: then the partitions were given in the member's, as far as anybody
    knows."""
    held = {}
    for _ in range(reader.array_length()):
        (topic_id,) = reader.unpack(_TOPIC_ID)
        partitions = reader.int32s()
        given_in: tuple[int, ...] = ()
        tagged = reader.tagged().get(_ONLY_TAG)
        if tagged is not None:
            epochs = RecordReader(tagged)
            epochs.is_flexible = True
            given_in = epochs.int32s()
        if len(given_in) != len(partitions):
            given_in = (max(epoch, 0),) * len(partitions)
        held[topic_id] = dict(zip(partitions, given_in, strict=True))
    return held


def _read_resolved(reader: RecordReader) -> ResolvedRegex:
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    version, timestamp_ms = reader.unpack(_RESOLVED)
    reader.tagged()
    return ResolvedRegex(topics, version, timestamp_ms)
