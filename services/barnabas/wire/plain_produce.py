"""The plain Produce request, read in one pass.

Nearly every small request of the hot path looks the same: a flexible version (9 to 13), no transaction, no tagged
fields, one batch for one partition. This reads that shape alone, checking each length as it comes to it, and says None
to everything else, which then takes the general way (`requests.read_body`, at a quarter of the speed). The tests hold
the two to each other.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.wire.produce import FLEXIBLE_FROM, TOPIC_ID_FROM

VERSION_MAX: Final = 13

_HEADER: Final = struct.Struct(">hhih")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hiB")
_INT32: Final = struct.Struct(">i")
_UUID_BYTES: Final = 16
_ONE: Final = 2
"""A compact array of one item: lengths are written as one more than they are."""
_ONE_BYTE_MAX: Final = 0x7F
"""The largest value of a varint of one byte: a longer name is not plain."""
_VARINT_SHIFTS: Final = (7, 14, 21, 28)
_NO_TAGS: Final = b"\0\0\0"
"""Behind the partition, the topic and the request."""


class PlainProduce(NamedTuple):
    """What a plain request asks for. The topic is a name in UTF-8, from version 13 on an id of 16 bytes."""

    version: int
    correlation_id: int
    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    records: memoryview
    """In the frame; nothing is copied."""


def read_plain_produce(frame: bytes) -> PlainProduce | None:
    """The request in `frame`, header and body; None when it is not plain, or cut, or not a Produce request."""
    try:
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        if api_key or not FLEXIBLE_FROM <= version <= VERSION_MAX or client_id_bytes < -1:
            return None
        at = _HEADER.size + client_id_bytes if client_id_bytes > 0 else _HEADER.size
        if frame[at] or frame[at + 1]:  # tagged fields of the header, a transactional id
            return None
        acks, timeout_ms, topics = _ACKS_AND_TIMEOUT.unpack_from(frame, at + 2)
        at += 2 + _ACKS_AND_TIMEOUT.size
        size = _UUID_BYTES
        if version < TOPIC_ID_FROM:
            size = frame[at] - 1
            at += 1
        end = at + size
        if topics != _ONE or not 0 <= size < _ONE_BYTE_MAX or frame[end] != _ONE:
            return None
        topic = frame[at:end]
        (partition,) = _INT32.unpack_from(frame, end + 1)
        size = frame[end + 5]
        at = end + 6
        if size > _ONE_BYTE_MAX:
            size, at = _read_long(frame, size, at)
    except (IndexError, struct.error):
        return None
    end = at + size - 1
    if size < 1 or frame[end : end + len(_NO_TAGS)] != _NO_TAGS:
        return None
    return PlainProduce(
        version, correlation_id, acks, timeout_ms, topic, partition, memoryview(frame)[at:end]
    )


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
