"""The header of a record batch, format version 2: the only part of a batch that the hot path reads.

Layout (big endian; Kafka documentation, "Record Batch"; KIP-98 and KIP-101 for the producer and epoch fields):

    0  base offset       int64   patched by the leader
    8  batch length      int32   bytes after this field
    12 leader epoch      int32   patched by the leader
    16 magic             int8    2
    17 crc               uint32  CRC-32C over everything from byte 21 to the end
    21 attributes        int16   compression, timestamp type, transactional, control, delete horizon
    23 last offset delta int32
    27 base timestamp    int64   ms; the first record's (or the delete horizon)
    35 max timestamp     int64   ms
    43 producer id       int64
    51 producer epoch    int16
    53 base sequence     int32
    57 record count      int32
    61 records
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
"""Bytes before the first record."""
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which `batch_length` does not count."""
CRC_START = 21
"""The first byte that the CRC covers; all that a leader patches stands before it."""
MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1

HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qiibI")
_MAX_TIMESTAMP_AT = 35
_FLAGS_AT = CRC_START + 1
_PRODUCER_ID_AT = 43
_NEGATIVE = 0x80
"""The least first byte of a number below 0."""
assert HEADER.size == HEADER_SIZE
assert _PREFIX.size == CRC_START


class BatchHeader(NamedTuple):
    """The 61 bytes, as they stand."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's id: see `barnabas.records.compression.Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 where the producer numbers nothing."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers run from 0 to 2^31-1 and start again at 0."""
    return (sequence + increment) & SEQUENCE_MAX


def decrement_sequence(sequence: int, decrement: int) -> int:
    """The inverse of `increment_sequence`."""
    return (sequence - decrement) & SEQUENCE_MAX


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header that starts at `position`; raises struct.error when 61 bytes are not there.

    Nothing in it is checked: see `barnabas.records.validate`.
    """
    # As `_make`, which would count the fields once more.
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))


def first_flags(records: Buffer | None) -> int:
    """The low byte of the first batch's attributes, where all the flags are; 0 where it is cut before them."""
    return records[_FLAGS_AT] if records is not None and len(records) > _FLAGS_AT else 0


def is_sequenced(records: Buffer) -> bool:
    """Whether the first batch is of an idempotent producer: its id is not negative."""
    return len(records) > _PRODUCER_ID_AT and records[_PRODUCER_ID_AT] < _NEGATIVE


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; a batch cut at the end of the buffer is left out.

    Stops as well at a length that cannot be: what follows it is not a batch.
    """
    position, end = 0, len(buffer)
    while position + HEADER_SIZE <= end:
        header = parse_header(buffer, position)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            return
        yield position, header
        position += size


def crc_of_tail(tail: bytes) -> int:
    """CRC-32C of a batch's bytes from byte 21 on.

    The native checksum reads only `bytes`; the leader's append therefore copies the tail once, and writes the same
    copy to disk.
    """
    return int(google_crc32c.value(tail))


def crc_is_valid(batch: Buffer, position: int = 0) -> bool:
    """Whether the checksum of the whole batch at `position` is right; the size field must have been checked."""
    header = parse_header(batch, position)
    tail = bytes(memoryview(batch)[position + CRC_START : position + header.size_in_bytes])
    return crc_of_tail(tail) == header.crc


def patched_prefix(header: BatchHeader, base_offset: int, leader_epoch: int, crc: int | None = None) -> bytes:
    """The 21 bytes before the checksummed part, with the leader's offset and epoch in them."""
    return _PREFIX.pack(
        base_offset, header.batch_length, leader_epoch, header.magic, header.crc if crc is None else crc
    )


def log_append_time_tail(batch: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """The bytes from byte 21 on of a batch stamped with the log append time; its CRC has to be computed anew.

    Sets the timestamp type bit and the max timestamp, as a leader does for message.timestamp.type=LogAppendTime.
    """
    tail = bytearray(memoryview(batch)[CRC_START : header.size_in_bytes])
    struct.pack_into(">h", tail, 0, header.attributes | TIMESTAMP_TYPE_BIT)
    struct.pack_into(">q", tail, _MAX_TIMESTAMP_AT - CRC_START, now_ms)
    return bytes(tail)
