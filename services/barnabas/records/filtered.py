"""A batch with some of its records taken out, as log compaction leaves it; what stays keeps its offset.

Base offset, last offset delta, codec, leader epoch and the producer's fields are those of the original, so that
sequence numbers still add up (KIP-98). A batch with tombstones may carry a delete horizon (KIP-534): the time from
which they may go stands where the base timestamp stood, and timestamp deltas count from it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.records import batch as b
from barnabas.records.batch import BatchHeader, Buffer
from barnabas.records.compression import compress
from barnabas.records.record import (
    check_increases,
    decode_prefix,
    read_bytes,
    read_varint,
    records_of,
    write_varint,
)

_TAIL = struct.Struct(">hiqqqhii")
_EMPTY_ATTRIBUTES = b.TIMESTAMP_TYPE_BIT | b.TRANSACTIONAL_BIT | b.CONTROL_BIT


class KeyedRecord(NamedTuple):
    """A record's key and where its bytes stand in the batch's decompressed records: [start, end), those after the
    offset delta from `key_start` on. `timestamp` in ms.
    """

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    start: int
    key_start: int
    end: int


def read_keyed_records(batch: Buffer) -> tuple[bytes, list[KeyedRecord]]:
    """(decompressed records, one entry each) of the one batch that `batch` holds; values are not copied.

    Raises KafkaError as `decode_offsets_and_timestamps` does.
    """
    header, data = records_of(batch)
    records = []
    position, last = 0, -1
    for _ in range(header.record_count):
        start = position
        offset, timestamp, key_start, position = decode_prefix(header, data, start)
        check_increases(offset, last)
        last = offset
        key, value_start = read_bytes(data, key_start, position)
        value_size, _ = read_varint(data, value_start, position)
        records.append(KeyedRecord(offset, timestamp, key, value_size >= 0, start, key_start, position))
    return data, records


def rebuild_batch(
    header: BatchHeader, data: bytes, retained: Sequence[KeyedRecord], delete_horizon_ms: int | None
) -> bytes:
    """The batch with only the `retained` records of `data`, at least one, in the same codec.

    With `delete_horizon_ms` the batch gets that horizon; otherwise it keeps the one that it has, if any.
    """
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in retained)
    if delete_horizon_ms is None:
        body = b"".join([data[record.start : record.end] for record in retained])
    else:
        attributes |= b.DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
        body = _with_base_timestamp(header, data, retained, base_timestamp)
    return _with_header(header, attributes, base_timestamp, max_timestamp, len(retained), body)


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone: it keeps a producer's last sequence number, or the log's last offset, once the records are
    gone.
    """
    return _with_header(
        header, header.attributes & _EMPTY_ATTRIBUTES, b.NO_TIMESTAMP, header.max_timestamp, 0, b""
    )


def _with_base_timestamp(
    header: BatchHeader, data: bytes, retained: Sequence[KeyedRecord], base_timestamp: int
) -> bytes:
    body = bytearray()
    for record in retained:
        fields = bytearray(1)
        write_varint(fields, record.timestamp - base_timestamp)
        write_varint(fields, record.offset - header.base_offset)
        fields += data[record.key_start : record.end]
        write_varint(body, len(fields))
        body += fields
    return bytes(body)


def _with_header(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, body: bytes
) -> bytes:
    codec = attributes & b.COMPRESSION_MASK
    tail = _TAIL.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    ) + compress(codec, body)
    rebuilt = header._replace(batch_length=len(tail) + b.CRC_START - b.LOG_OVERHEAD, crc=b.crc_of_tail(tail))
    return b.patched_prefix(rebuilt, header.base_offset, header.partition_leader_epoch) + tail
