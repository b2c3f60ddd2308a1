"""The Fetch request that names nothing out of the ordinary, read in one pass.

Every fetch of a consumer looks alike but for its version: no tagged fields, nothing that its session is to forget. This
reads that shape alone, checking each length as it comes to it and the partitions of a topic together, and says None to
everything else, which then takes the general way (`requests.read_body`); so does a request of many items, whose number
is bounded there. The tests hold the two to each other.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.wire.fetch import API_KEY, FLEXIBLE_FROM, TOPIC_ID_FROM
from barnabas.wire.requests import MalformedRequest, read_unsigned_varint

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18

ITEMS_MAX: Final = 1_000
"""Topics and partitions of a plain request together: read in a millisecond or two."""

_HEADER: Final = struct.Struct(">hhih")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID_BYTES: Final = 16
_NO_TAGS: Final = 0

_LIMITS_V4: Final = struct.Struct(">4xiiib")
_LIMITS_V7: Final = struct.Struct(">4xiiibii")
_LIMITS_V15: Final = struct.Struct(">iiibii")
"""max_wait, min_bytes, max_bytes and isolation level, behind the replica id; session id and epoch."""

_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iq8xi")
_PARTITION_V9: Final = struct.Struct(">iiq8xi")
_PARTITION_V12: Final = struct.Struct(">iiqi8xiB")
"""A partition with its fields in the order of the versions; the log start offset is a follower's."""

WantedFields = tuple[str | bytes, int, int, int, int, int]
"""(topic, partition, fetch offset, bytes at most, current leader epoch, last fetched epoch); the topic is a name, from
version 13 on an id of 16 bytes; an epoch of -1 is none.
"""


class PlainFetch(NamedTuple):
    """What a plain request asks for; the session is 0 and its epoch -1 where the version has none."""

    version: int
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[WantedFields]
    rack: bytes
    """The client's, as it stands there; empty when it has none (KIP-392)."""


def read_plain_fetch(frame: bytes) -> PlainFetch | None:
    """The request in `frame`, header and body; None when it is not plain, or cut, or not a Fetch request."""
    try:
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        if api_key != API_KEY or not VERSION_MIN <= version <= VERSION_MAX or client_id_bytes < -1:
            return None
        at = _HEADER.size + max(client_id_bytes, 0)
        session_id, session_epoch = 0, -1
        if version < 7:
            max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS_V4.unpack_from(frame, at)
            at += _LIMITS_V4.size
        else:
            limits = _LIMITS_V7 if version < 15 else _LIMITS_V15
            if version >= FLEXIBLE_FROM:
                if frame[at] != _NO_TAGS:
                    return None
                at += 1
            fields = limits.unpack_from(frame, at)
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = fields
            at += limits.size
        read = _read_flexible if version >= FLEXIBLE_FROM else _read_legacy
        partitions = read(frame, at, version)
    except (IndexError, ValueError, struct.error, MalformedRequest):
        return None
    if partitions is None:
        return None
    wanted, rack = partitions
    return PlainFetch(
        version,
        correlation_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        wanted,
        rack,
    )


def _read_flexible(frame: bytes, at: int, version: int) -> tuple[list[WantedFields], bytes] | None:
    """The partitions of a request whose topics start at `at`, and the client's rack; None when something else is in the
    request as well.
    """
    wanted: list[WantedFields] = []
    topics, at = read_unsigned_varint(frame, at)
    items_left = ITEMS_MAX - (topics - 1)
    if items_left < 0:
        return None
    topic: str | bytes
    for _ in range(topics - 1):
        if version >= TOPIC_ID_FROM:
            topic = frame[at : at + _UUID_BYTES]
            at += _UUID_BYTES
        else:
            size, at = read_unsigned_varint(frame, at)
            if size < 1:
                return None
            topic = frame[at : at + size - 1].decode()
            at += size - 1
        count, at = read_unsigned_varint(frame, at)
        items_left -= count - 1
        end = at + (count - 1) * _PARTITION_V12.size
        if count < 1 or items_left < 0 or end >= len(frame) or frame[end] != _NO_TAGS:
            return None
        for index, epoch, offset, last_epoch, max_bytes, tags in _PARTITION_V12.iter_unpack(frame[at:end]):
            if tags != _NO_TAGS:
                return None
            wanted.append((topic, index, offset, max_bytes, epoch, last_epoch))
        at = end + 1
    # No forgotten topics, then the client's rack and no tagged fields.
    rack_bytes, rack_at = read_unsigned_varint(frame, at + 1)
    end = rack_at + rack_bytes - 1
    if topics < 1 or frame[at] != 1 or rack_bytes < 1 or frame[end] != _NO_TAGS:
        return None
    return wanted, frame[rack_at:end]


def _read_legacy(frame: bytes, at: int, version: int) -> tuple[list[WantedFields], bytes] | None:
    """As `_read_flexible`, for the versions before it."""
    fields = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    wanted: list[WantedFields] = []
    (topics,) = _INT32.unpack_from(frame, at)
    at += _INT32.size
    items_left = ITEMS_MAX - topics
    if topics < 0 or items_left < 0:
        return None
    for _ in range(topics):
        (size,) = _INT16.unpack_from(frame, at)
        at += _INT16.size + size
        topic = frame[at - size : at].decode()
        (count,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        items_left -= count
        end = at + count * fields.size
        if size < 0 or count < 0 or items_left < 0 or end > len(frame):
            return None
        if version >= 9:
            for index, epoch, offset, max_bytes in fields.iter_unpack(frame[at:end]):
                wanted.append((topic, index, offset, max_bytes, epoch, -1))
        else:
            for index, offset, max_bytes in fields.iter_unpack(frame[at:end]):
                wanted.append((topic, index, offset, max_bytes, -1, -1))
        at = end
    if version >= 7:
        (forgotten,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        if forgotten:
            return None
    rack = b""
    if version >= 11:
        (size,) = _INT16.unpack_from(frame, at)
        rack_at = at + _INT16.size
        if size < 0 or rack_at + size > len(frame):
            return None
        rack = frame[rack_at : rack_at + size]
    return wanted, rack
