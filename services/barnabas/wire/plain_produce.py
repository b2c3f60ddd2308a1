"""The plain Produce request, read in one pass, and its answer, written from a template.

Nearly every small request of the hot path looks the same: a flexible version (9 to 13), no tagged fields, one batch
for one partition, of a transaction or not. This reads that shape alone, checking each length as it comes to it, and
says None to everything else, which then takes the general way (`requests.read_body`, at a quarter of the speed). The
tests hold the two to each other, and the answer to what `produce.py` writes.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.wire.produce import FLEXIBLE_FROM, TOPIC_ID_FROM

VERSION_MAX: Final = 13

_HEADER: Final = struct.Struct(">hhih")
_TAGS_AND_ID: Final = struct.Struct(">BB")
"""Tagged fields of the header, the first byte of the transactional id's length."""
_BEFORE_TOPIC: Final = struct.Struct(">hiB")
"""Acks, timeout, topics."""
_BEFORE_RECORDS: Final = struct.Struct(">BiB")
"""Partitions, partition, the first byte of the records' length."""
_UUID_BYTES: Final = 16
_ONE: Final = 2
"""A compact array of one item: lengths are written as one more than they are."""
_ONE_BYTE_MAX: Final = 0x7F
"""The largest value of a varint of one byte: a longer name is not plain."""
_VARINT_SHIFTS: Final = (7, 14, 21, 28)
_NO_TAGS: Final = b"\0\0\0"
"""Behind the partition, the topic and the request."""


_ANSWER_BY_ID: Final = struct.Struct(">iibB")
_ANSWER_BY_NAME: Final = struct.Struct(">iibBB")
"""Length, correlation id, no tagged fields, topics; the length of the topic's name."""
_ANSWER_REST: Final = struct.Struct(">BihqqqBBBBiB")
"""Partitions, partition, error, offset, time, log start; no record errors, no message; tagged fields of the partition
and the topic; throttle time, tagged fields of the answer."""
_ANSWER_BY_ID_BYTES: Final = _ANSWER_BY_ID.size - 4 + _UUID_BYTES + _ANSWER_REST.size
_ANSWER_BY_NAME_BYTES: Final = _ANSWER_BY_NAME.size - 4 + _ANSWER_REST.size
"""What their length fields say, but for the name."""

PlainProduce = tuple[int, int, str | None, int, int, bytes, int, memoryview]
"""What a plain request asks for: version, correlation id, transactional id, acks, timeout in ms, topic, partition,
records.

The topic is a name in UTF-8, from version 13 on an id of 16 bytes. The records are in the frame, nothing is copied.
"""


def read_plain_produce(frame: bytes) -> PlainProduce | None:
    """The request in `frame`, header and body; None when it is not plain, or cut, or not a Produce request."""
    try:
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        if api_key or not FLEXIBLE_FROM <= version <= VERSION_MAX or client_id_bytes < -1:
            return None
        at = _HEADER.size + client_id_bytes if client_id_bytes > 0 else _HEADER.size
        tags, size = _TAGS_AND_ID.unpack_from(frame, at)
        at += _TAGS_AND_ID.size
        transactional_id = None
        if size:
            transactional_id = frame[at : at + size - 1].decode()
            at += size - 1
        acks, timeout_ms, topics = _BEFORE_TOPIC.unpack_from(frame, at)
        if tags or size > _ONE_BYTE_MAX or topics != _ONE:
            return None
        at += _BEFORE_TOPIC.size
        size = _UUID_BYTES
        if version < TOPIC_ID_FROM:
            size = frame[at] - 1
            at += 1
        end = at + size
        if not 0 <= size < _ONE_BYTE_MAX:
            return None
        topic = frame[at:end]
        partitions, partition, size = _BEFORE_RECORDS.unpack_from(frame, end)
        if partitions != _ONE:
            return None
        at = end + _BEFORE_RECORDS.size
        if size > _ONE_BYTE_MAX:
            size, at = _read_long(frame, size, at)
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    end = at + size - 1
    if size < 1 or frame[end : end + len(_NO_TAGS)] != _NO_TAGS:
        return None
    records = memoryview(frame)[at:end]
    return version, correlation_id, transactional_id, acks, timeout_ms, topic, partition, records


def _read_long(frame: bytes, byte: int, at: int) -> tuple[int, int]:
    """(an unsigned varint whose first byte is `byte`, where it ends); the value is 0 for one that is too long."""
    value = byte & 0x7F
    for shift in _VARINT_SHIFTS:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= _ONE_BYTE_MAX:
            return value, at
    return 0, at


def encode_plain_answer(
    version: int,
    correlation_id: int,
    topic: bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole frame, length included, of the answer to a plain request whose records were taken."""
    rest = _ANSWER_REST.pack(
        _ONE, partition, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
    )
    if version >= TOPIC_ID_FROM:
        return _ANSWER_BY_ID.pack(_ANSWER_BY_ID_BYTES, correlation_id, 0, _ONE) + topic + rest
    size = len(topic)
    return (
        _ANSWER_BY_NAME.pack(_ANSWER_BY_NAME_BYTES + size, correlation_id, 0, _ONE, size + 1) + topic + rest
    )
