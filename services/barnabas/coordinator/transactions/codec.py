"""Between the state machine's records and the bytes of __transaction_state."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.record_reader import RecordReader
from barnabas.coordinator.runtime.record_schema import VERSION, write_versioned
from barnabas.coordinator.runtime.record_writer import RecordWriter, write_key
from barnabas.coordinator.transactions import schema
from barnabas.coordinator.transactions.core.records import TransactionRecord, by_topic
from barnabas.coordinator.transactions.core.states import STATE_IDS, TransactionState
from barnabas.coordinator.transactions.core.transaction import (
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
)
from barnabas.kernel.logs import get_logger
from barnabas.records.batch import crc_is_valid, parse_header
from barnabas.records.record import decode_records

log = get_logger("coordinator.transactions")

KEY_VERSION: Final = 0
VALUE_VERSION_MAX: Final = 1

_STATES: Final = {number: state for state, number in STATE_IDS.items()}
_HEAD: Final = struct.Struct(">qhib")
"""Of a value: producer id, epoch, timeout, state."""
_TIMES: Final = struct.Struct(">qq")
"""Of a value, after the partitions: last update, start."""
_PREVIOUS_PRODUCER_ID: Final = (0, struct.Struct(">q"), NO_PRODUCER_ID)
_NEXT_PRODUCER_ID: Final = (1, struct.Struct(">q"), NO_PRODUCER_ID)
_CLIENT_VERSION: Final = (2, struct.Struct(">h"), 0)
"""Number, layout and default of the tagged fields that are read."""


class UnknownVersion(Exception):
    """A key or a value that only a newer coordinator knows."""


def encode_record(record: TransactionRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Key and value under the finalized transaction.version (0 to 2); the value is None for a tombstone."""
    key = write_key(KEY_VERSION, record.transactional_id)
    return key, None if record.value is None else _encode_value(record.value, transaction_version)


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """The record. Raises UnknownVersion for what is to be left alone, as Kafka does, and UnreadableRecord where the
    version is known and the rest is not."""
    if key is None:
        raise UnreadableRecord("a record of __transaction_state without a key")
    reader = RecordReader(key)
    key_version = reader.int16()
    if key_version != KEY_VERSION:
        raise UnknownVersion(f"key version {key_version}")
    return TransactionRecord(reader.string(), None if value is None else _decode_value(value))


def decode_batch(batch: memoryview) -> Iterator[TransactionRecord]:
    """The records of one batch that this coordinator knows. Raises UnreadableRecord, and KafkaError as
    `barnabas.records.record.decode_records` does."""
    header = parse_header(batch)
    if not crc_is_valid(batch):  # nobody has looked since it was appended, and disks may rot
        raise UnreadableRecord(f"the record batch at offset {header.base_offset} is damaged")
    if header.is_control:
        return
    unknown: dict[str, int] = {}
    for record in decode_records(batch):
        try:
            yield decode_record(record.key, record.value)
        except UnknownVersion as version:
            unknown[str(version)] = unknown.get(str(version), 0) + 1
    if unknown:
        log.warning("records of a newer coordinator are left out", base_offset=header.base_offset, **unknown)


def _encode_value(transaction: Transaction, transaction_version: int) -> bytes:
    """Version 0 has no place for how a transaction of version 2 goes on: what began under that, before
    transaction.version was lowered, is still written as version 1."""
    needs_tags = transaction.client_version != 0 or transaction.next_producer_id != NO_PRODUCER_ID
    if transaction_version >= 1 or needs_tags:
        return _encode_flexible(transaction)
    partitions = tuple(
        schema.PartitionsSchemaV0(topic=topic, partition_ids=tuple(numbers))
        for topic, numbers in by_topic(transaction.partitions).items()
    )
    value = schema.TransactionLogValueV0(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATE_IDS[transaction.state],
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    return write_versioned(0, value)


def _encode_flexible(transaction: Transaction) -> bytes:
    """Version 1, by hand: each transaction is written three times, and kio takes three times as long."""
    writer = RecordWriter()
    writer.pack(VERSION, VALUE_VERSION_MAX)
    status = STATE_IDS[transaction.state]
    writer.pack(_HEAD, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, status)
    if transaction.state is TransactionState.EMPTY:
        writer.byte_array(None)
    else:
        topics = by_topic(transaction.partitions)
        writer.array_length(len(topics))
        for topic, numbers in topics.items():
            writer.string(topic)
            writer.int32s(numbers)
            writer.tagged()
    writer.pack(_TIMES, transaction.last_update_ms, transaction.start_ms)
    tagged = (
        (_PREVIOUS_PRODUCER_ID, transaction.previous_producer_id),
        (_NEXT_PRODUCER_ID, transaction.next_producer_id),
        (_CLIENT_VERSION, transaction.client_version),
    )
    writer.tagged({tag: layout.pack(value) for (tag, layout, default), value in tagged if value != default})
    return writer.finish()


def _decode_value(value: bytes) -> Transaction:
    reader = RecordReader(value)
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise UnknownVersion(f"value version {version}")
    reader.is_flexible = version >= 1
    producer_id, epoch, timeout_ms, status = reader.unpack(_HEAD)
    if status not in _STATES:
        raise UnreadableRecord(f"a transaction in the state {status}, which is never written")
    partitions: set[TopicPartition] = set()
    for _ in range(reader.array_length()):
        topic = reader.string()
        partitions.update(TopicPartition(topic, number) for number in reader.int32s())
        reader.tagged()
    last_update_ms, start_ms = reader.unpack(_TIMES)
    tagged = reader.tagged()
    return Transaction(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=_STATES[status],
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        partitions=frozenset(partitions),
        previous_producer_id=_tagged(tagged, *_PREVIOUS_PRODUCER_ID),
        next_producer_id=_tagged(tagged, *_NEXT_PRODUCER_ID),
        client_version=_tagged(tagged, *_CLIENT_VERSION),
    )


def _tagged(fields: Mapping[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    field = fields.get(tag)
    if field is None:
        return default
    if len(field) != layout.size:
        raise UnreadableRecord(f"the tagged field {tag} has {len(field)} bytes")
    value: int = layout.unpack(field)[0]
    return value
