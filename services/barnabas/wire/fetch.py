"""The Fetch response, encoded by hand as a list of pieces: record batches are never copied into a body.

Versions 4 to 18; the tests hold it to kio's writer byte by byte. Of the leaders' endpoints that 16 has a place for,
none is ever told: `gateway/handlers/fetch.py` says why.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.kernel.varint import unsigned_varint
from barnabas.wire.produce import legacy_string
from barnabas.wire.responses import response_header

API_KEY: Final = 1
FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13

_INT32: Final = struct.Struct(">i")
_PARTITION_V4: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_FLEXIBLE: Final = struct.Struct(">qqb")
_SESSION: Final = struct.Struct(">ihi")
_DIVERGING_TAG: Final = struct.Struct(">bbiqb")
_LEADER_TAG: Final = struct.Struct(">bbiib")


Piece = bytes | memoryview


class FetchedPartition(NamedTuple):
    """What was read from one partition. Offsets are -1 on error."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of each; None under read uncommitted."""
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset) where the client's log and this one part (KIP-595)."""
    current_leader: tuple[int, int] | None = None
    """(leader id, leader epoch) when the client asked the wrong one (KIP-951)."""
    preferred_read_replica: int = -1
    """The broker that the client is to read from instead (KIP-392), with no records; -1 is this one."""


FetchedTopics = Sequence[tuple[str | bytes, Sequence[FetchedPartition]]]
"""Topic name, or from version 13 topic id as 16 bytes, with what was read from its partitions."""


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: FetchedTopics,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
) -> list[Piece]:
    """The pieces of the whole frame, length included; record batches are pieces of their own."""
    pieces: list[Piece] = []
    pieces.append(_INT32.pack(throttle_time_ms))
    if version >= 7:
        pieces[0] = _SESSION.pack(throttle_time_ms, error_code, session_id)
    if version < FLEXIBLE_FROM:
        _add_legacy_topics(pieces, version, topics)
    else:
        _add_flexible_topics(pieces, topics)
        pieces.append(b"\0")
    payload_bytes = sum(map(len, pieces))
    pieces.insert(0, response_header(API_KEY, version, correlation_id, payload_bytes))
    return pieces


def _add_legacy_topics(pieces: list[Piece], version: int, topics: FetchedTopics) -> None:
    pieces.append(_INT32.pack(len(topics)))
    for name, partitions in topics:
        assert isinstance(name, str)
        pieces += (legacy_string(name), _INT32.pack(len(partitions)))
        for partition in partitions:
            index, error, high, stable, start, records, aborted, _, _, preferred = partition
            if version >= 5:
                pieces.append(_PARTITION_V5.pack(index, error, high, stable, start))
            else:
                pieces.append(_PARTITION_V4.pack(index, error, high, stable))
            pieces.append(_INT32.pack(-1 if aborted is None else len(aborted)))
            if aborted:
                pieces += (_ABORTED.pack(*transaction) for transaction in aborted)
            if version >= 11:
                pieces.append(_INT32.pack(preferred))
            pieces += (_INT32.pack(len(records)), records)


def _add_flexible_topics(pieces: list[Piece], topics: FetchedTopics) -> None:
    pieces.append(unsigned_varint(len(topics) + 1))
    for topic, partitions in topics:
        if isinstance(topic, bytes):
            pieces.append(topic)
        else:
            data = topic.encode()
            pieces += (unsigned_varint(len(data) + 1), data)
        pieces.append(unsigned_varint(len(partitions) + 1))
        for partition in partitions:
            index, error, high, stable, start, records, aborted, diverging, leader, preferred = partition
            pieces.append(_PARTITION_V5.pack(index, error, high, stable, start))
            pieces.append(b"\0" if aborted is None else unsigned_varint(len(aborted) + 1))
            if aborted:
                pieces += (_ABORTED_FLEXIBLE.pack(*transaction, 0) for transaction in aborted)
            pieces += (_INT32.pack(preferred), unsigned_varint(len(records) + 1), records)
            pieces.append(_partition_tags(diverging, leader))
        pieces.append(b"\0")


def _partition_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    if diverging is None and leader is None:
        return b"\0"
    tags = b""
    if diverging is not None:
        tags += _DIVERGING_TAG.pack(0, 13, diverging[0], diverging[1], 0)
    if leader is not None:
        tags += _LEADER_TAG.pack(1, 9, leader[0], leader[1], 0)
    return bytes([(diverging is not None) + (leader is not None)]) + tags
