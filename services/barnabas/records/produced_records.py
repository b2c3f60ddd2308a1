"""The records of a batch that a producer sent, walked for what its leader must know of each.

The walk looks at no more than that: it is as long as a batch has records, and a small batch may claim millions. Offsets
have to count up from 0, so a batch that only repeats one record ends it at the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer
from barnabas.records.compression import Compression
from barnabas.records.record import read_varint

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp, offset, two lengths of what is not there, and the number of headers."""

RECORDS_PER_COMPRESSED_BYTE_MAX: Final = 4
"""Records differ at least in their offsets. The shortest that there are, in a batch of a million, take zstd at its best
eight tenths of a byte each."""


def is_crowded(header: BatchHeader) -> bool:
    """Whether the batch claims more records than its bytes can hold."""
    size = header.size_in_bytes - HEADER_SIZE
    if header.compression == Compression.NONE:
        return header.record_count * RECORD_BYTES_MIN > size
    return header.record_count > size * RECORDS_PER_COMPRESSED_BYTE_MAX


def walk_records(header: BatchHeader, data: Buffer) -> Iterator[tuple[int, bool]]:
    """(timestamp, whether there is a key) of each record in `data`, the uncompressed records of a producer's batch.

    Headers are not looked at. Raises KafkaError(INVALID_RECORD) where lengths, counts or offsets are wrong.
    """
    position, total, base = 0, len(data), header.base_timestamp
    try:
        for index in range(header.record_count):
            size, position = _varint(data, position, total)
            end = position + size
            if size <= 0 or end > total:
                raise _invalid("a record reaches past its batch")
            timestamp, position = _varint(data, position + 1, end)
            offset, position = _varint(data, position, end)
            if offset != index:
                raise _invalid(f"record {index} says that its offset is {offset}")
            key_size, position = _varint(data, position, end)
            value_size, position = _varint(data, position + max(key_size, 0), end)
            position += max(value_size, 0)
            # At least the number of headers follows.
            if key_size < -1 or value_size < -1 or position >= end:
                raise _invalid("a key or value reaches past its record")
            position = end
            yield base + timestamp, key_size >= 0
    except IndexError:
        raise _invalid("a record is cut") from None
    if position != total:
        raise _invalid("bytes follow the last record")


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """As `read_varint`, quickly where it has one byte."""
    byte = data[position]
    if byte < 0x80 and position < end:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varint(data, position, end)


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, f"the record batch is malformed: {what}")
