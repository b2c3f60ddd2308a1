"""Between the state machine's records and the bytes of __transaction_state."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kio.serial import entity_reader
from kio.serial.errors import DecodeError

from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.record_schema import VERSION, write_versioned
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

VALUE_VERSION_MAX: Final = 1
_VALUES: Final[Mapping[int, type[Any]]] = {
    0: schema.TransactionLogValueV0,
    1: schema.TransactionLogValueV1,
}
_STATES: Final = {number: state for state, number in STATE_IDS.items()}


class UnknownVersion(Exception):
    """A key or a value that only a newer coordinator knows."""


def encode_record(record: TransactionRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Key and value under the finalized transaction.version (0 to 2); the value is None for a tombstone."""
    key = schema.TransactionLogKey(transactional_id=record.transactional_id)
    value = None if record.value is None else _encode_value(record.value, transaction_version)
    return write_versioned(schema.TRANSACTION_KEY_VERSION, key), value


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """The record. Raises UnknownVersion for what is to be left alone, as Kafka does, and UnreadableRecord where the
    version is known and the rest is not."""
    try:
        if key is None:
            raise UnreadableRecord("a record without a key")
        (key_version,) = VERSION.unpack_from(key)
        if key_version != schema.TRANSACTION_KEY_VERSION:
            raise UnknownVersion(f"key version {key_version}")
        transactional_id = entity_reader(schema.TransactionLogKey)(key, VERSION.size)[0].transactional_id
        return TransactionRecord(transactional_id, None if value is None else _decode_value(value))
    except (DecodeError, UnicodeDecodeError, KeyError, struct.error) as error:
        raise UnreadableRecord(f"a record of __transaction_state: {error!r}") from error


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
    state = transaction.state
    needs_tags = transaction.client_version != 0 or transaction.next_producer_id != NO_PRODUCER_ID
    is_flexible = transaction_version >= 1 or needs_tags
    partitions_type = schema.PartitionsSchemaV1 if is_flexible else schema.PartitionsSchemaV0
    partitions = tuple(
        partitions_type(topic=topic, partition_ids=tuple(numbers))
        for topic, numbers in by_topic(transaction.partitions).items()
    )
    fields: dict[str, Any] = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": STATE_IDS[state],
        "transaction_partitions": None if state is TransactionState.EMPTY else partitions,
        "transaction_last_update_timestamp_ms": transaction.last_update_ms,
        "transaction_start_timestamp_ms": transaction.start_ms,
    }
    if not is_flexible:
        return write_versioned(0, schema.TransactionLogValueV0(**fields))
    value = schema.TransactionLogValueV1(
        **fields,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_version,
    )
    return write_versioned(VALUE_VERSION_MAX, value)


def _decode_value(value: bytes) -> Transaction:
    (version,) = VERSION.unpack_from(value)
    entity_type = _VALUES.get(version)
    if entity_type is None:
        raise UnknownVersion(f"value version {version}")
    entity, _ = entity_reader(entity_type)(value, VERSION.size)
    return Transaction(
        producer_id=entity.producer_id,
        producer_epoch=entity.producer_epoch,
        timeout_ms=entity.transaction_timeout_ms,
        state=_STATES[entity.transaction_status],
        last_update_ms=entity.transaction_last_update_timestamp_ms,
        start_ms=entity.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in entity.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        previous_producer_id=getattr(entity, "previous_producer_id", NO_PRODUCER_ID),
        next_producer_id=getattr(entity, "next_producer_id", NO_PRODUCER_ID),
        client_version=getattr(entity, "client_transaction_version", 0),
    )
