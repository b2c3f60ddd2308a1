"""The records inside a batch: decoding for those who need them, encoding for tools, coordinators and tests.

A record is varint-framed (Kafka documentation, "Record"): length, attributes, timestamp delta, offset delta, key,
value, headers. Varints are zigzag. Every length is checked against the record's own end, so nothing outside is
read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records import batch as b
from barnabas.records.batch import BatchHeader, Buffer, parse_header
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, compress, decompress

Header = tuple[str, bytes | None]
RecordParts = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""(timestamp in ms, key, value, headers): what a caller of `encode_batch` gives for each record."""

_VARINT_BITS_MAX = 63


class Record(NamedTuple):
    """One decoded record; `timestamp` is in ms since the epoch, by the batch's timestamp type."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def decode_records(batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Every record of the one batch that `batch` starts with.

    Raises KafkaError(INVALID_RECORD) where lengths or counts do not add up, KafkaError(CORRUPT_MESSAGE) where the
    data does not decompress within `bytes_max`.
    """
    header, data = records_of(batch, bytes_max)
    position = 0
    for _ in range(header.record_count):
        offset, timestamp, position, end = decode_prefix(header, data, position)
        key, position = read_bytes(data, position, end)
        value, position = read_bytes(data, position, end)
        headers, position = _read_headers(data, position, end)
        if position != end:
            raise _invalid("a record is longer than its fields")
        yield Record(offset, timestamp, key, value, headers)
    if position != len(data):
        raise _invalid("bytes follow the last record")


def decode_offsets_and_timestamps(
    batch: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of every record, skipping keys, values and headers.

    Raises as `decode_records`, and INVALID_RECORD at the first record whose offset is not greater than that before it:
    a small batch that repeats one record may claim millions.
    """
    header, data = records_of(batch, bytes_max)
    position, last = 0, -1
    for _ in range(header.record_count):
        offset, timestamp, _, position = decode_prefix(header, data, position)
        check_increases(offset, last)
        last = offset
        yield offset, timestamp


def check_increases(offset: int, last: int) -> None:
    """Raise INVALID_RECORD unless `offset` is greater than `last`, that of the record before it."""
    if offset <= last:
        raise _invalid("a record's offset is not greater than that of the one before it")


def records_of(batch: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> tuple[BatchHeader, bytes]:
    """(header, decompressed records) of a batch. Raises as `decode_records`."""
    if len(batch) < b.HEADER_SIZE:
        raise _invalid("the batch is shorter than its header")
    header = parse_header(batch)
    if header.size_in_bytes < b.HEADER_SIZE or header.size_in_bytes > len(batch):
        raise _invalid("the batch's length does not fit its bytes")
    return header, decompress(
        header.compression, memoryview(batch)[b.HEADER_SIZE : header.size_in_bytes], bytes_max
    )


def decode_prefix(header: BatchHeader, data: bytes, position: int) -> tuple[int, int, int, int]:
    """(offset, timestamp, position of the key, end) of the record at `position`."""
    size, position = read_varint(data, position, len(data))
    end = position + size
    if size <= 0 or end > len(data):
        raise _invalid("a record reaches past its batch")
    timestamp_delta, position = read_varint(data, position + 1, end)
    offset_delta, position = read_varint(data, position, end)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise _invalid("a record's offset lies outside its batch")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return header.base_offset + offset_delta, timestamp, position, end


def read_varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    shift = raw = 0
    while True:
        if position >= end or shift > _VARINT_BITS_MAX:
            raise _invalid("a varint is cut or too long")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Bytes with their length in front, None for length -1, and the position after them."""
    size, position = read_varint(data, position, end)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise _invalid("a key, value or header reaches past its record")
    return data[position : position + size], position + size


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position, end)
    if count == 0:
        return (), position
    # A header takes at least two bytes: a larger count cannot be true, whatever it claims.
    if count < 0 or count * 2 > end - position:
        raise _invalid("a record's header count does not fit it")
    headers: list[Header] = []
    for _ in range(count):
        key, position = read_bytes(data, position, end)
        if key is None:
            raise _invalid("a header has no key")
        value, position = read_bytes(data, position, end)
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as error:
            raise _invalid("a header's key is not UTF-8") from error
    return tuple(headers), position


def encode_batch(
    records: Iterable[RecordParts],
    *,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = b.NO_PRODUCER_ID,
    producer_epoch: int = b.NO_PRODUCER_EPOCH,
    base_sequence: int = b.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
    partition_leader_epoch: int = b.NO_LEADER_EPOCH,
) -> bytes:
    """One whole batch with a right CRC. Offsets run from `base_offset` without gaps; at least one record.

    With `log_append_time` the batch carries the timestamp type bit, and its max timestamp counts for every record.
    """
    listed = list(records)
    assert listed, "a batch holds at least one record"
    base_timestamp = listed[0][0]
    body = bytearray()
    for offset_delta, parts in enumerate(listed):
        _encode_record(body, offset_delta, base_timestamp, parts)
    attributes = compression | (b.TIMESTAMP_TYPE_BIT if log_append_time else 0)
    attributes |= (b.TRANSACTIONAL_BIT if transactional else 0) | (b.CONTROL_BIT if control else 0)
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        len(listed) - 1,
        base_timestamp,
        max(timestamp for timestamp, _, _, _ in listed),
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    ) + compress(compression, body)
    length = len(tail) + b.CRC_START - b.LOG_OVERHEAD
    prefix = struct.pack(">qiibI", base_offset, length, partition_leader_epoch, b.MAGIC, b.crc_of_tail(tail))
    return prefix + tail


def _encode_record(out: bytearray, offset_delta: int, base_timestamp: int, parts: RecordParts) -> None:
    timestamp, key, value, headers = parts
    fields = bytearray(1)
    write_varint(fields, timestamp - base_timestamp)
    write_varint(fields, offset_delta)
    _write_bytes(fields, key)
    _write_bytes(fields, value)
    write_varint(fields, len(headers))
    for header_key, header_value in headers:
        _write_bytes(fields, header_key.encode())
        _write_bytes(fields, header_value)
    write_varint(out, len(fields))
    out += fields


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, f"the record batch is malformed: {what}")
