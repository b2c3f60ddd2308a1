"""The Produce response, encoded by hand: it is written once for every request of the hot path.

Versions 3 to 13; the tests hold it to kio's writer byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.kernel.varint import unsigned_varint
from barnabas.wire.responses import response_header

API_KEY: Final = 0
FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13

_INT32: Final = struct.Struct(">i")
_LEGACY_PARTITION_V3: Final = struct.Struct(">ihqq")
_LEGACY_PARTITION_V5: Final = struct.Struct(">ihqqq")
_LEADER_TAG: Final = struct.Struct(">bbbiib")


class ProducedPartition(NamedTuple):
    """The answer for one partition.

    `current_leader` is (leader id, leader epoch) when the client should know, `record_errors` (place in the batch,
    message) of the records to blame for a refusal (KIP-467).
    """

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


class LeaderEndpoint(NamedTuple):
    """Where a leader named in `current_leader` can be reached (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


ProducedTopics = Sequence[tuple[str | bytes, Sequence[ProducedPartition]]]
"""Topic name, or from version 13 topic id as 16 bytes, with the answers for its partitions."""


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: ProducedTopics,
    leaders: Iterable[LeaderEndpoint] = (),
    throttle_time_ms: int = 0,
) -> bytes:
    """The whole frame, length included."""
    if version < FLEXIBLE_FROM:
        payload = _legacy_payload(version, topics, throttle_time_ms)
    else:
        payload = _flexible_payload(version, topics, list(leaders), throttle_time_ms)
    return response_header(API_KEY, version, correlation_id, len(payload)) + payload


def _legacy_payload(version: int, topics: ProducedTopics, throttle_time_ms: int) -> bytes:
    parts = [_INT32.pack(len(topics))]
    for name, partitions in topics:
        assert isinstance(name, str)
        parts += (legacy_string(name), _INT32.pack(len(partitions)))
        for partition in partitions:
            index, error, base_offset, append_time, log_start, message, _, record_errors = partition
            if version < 5:
                parts.append(_LEGACY_PARTITION_V3.pack(index, error, base_offset, append_time))
                continue
            parts.append(_LEGACY_PARTITION_V5.pack(index, error, base_offset, append_time, log_start))
            if version >= 8:
                parts.append(_INT32.pack(len(record_errors)))
                for batch_index, why in record_errors:
                    parts += (
                        _INT32.pack(batch_index),
                        b"\xff\xff" if why is None else legacy_string(why),
                    )
                parts.append(b"\xff\xff" if message is None else legacy_string(message))
    parts.append(_INT32.pack(throttle_time_ms))
    return b"".join(parts)


def _flexible_payload(
    version: int, topics: ProducedTopics, leaders: list[LeaderEndpoint], throttle_time_ms: int
) -> bytes:
    parts = [unsigned_varint(len(topics) + 1)]
    for topic, partitions in topics:
        parts.append(topic if isinstance(topic, bytes) else compact_string(topic))
        parts.append(unsigned_varint(len(partitions) + 1))
        for partition in partitions:
            index, error, base_offset, append_time, log_start, message, leader, record_errors = partition
            parts.append(_LEGACY_PARTITION_V5.pack(index, error, base_offset, append_time, log_start))
            parts.append(unsigned_varint(len(record_errors) + 1))
            for batch_index, why in record_errors:
                parts += (_INT32.pack(batch_index), b"\0" if why is None else compact_string(why), b"\0")
            parts.append(b"\0" if message is None else compact_string(message))
            if leader is not None and version >= 10:
                parts.append(_LEADER_TAG.pack(1, 0, 9, leader[0], leader[1], 0))
            else:
                parts.append(b"\0")
        parts.append(b"\0")
    parts.append(_INT32.pack(throttle_time_ms))
    parts.append(leader_endpoints_tag(leaders) if leaders and version >= 10 else b"\0")
    return b"".join(parts)


def leader_endpoints_tag(leaders: Sequence[LeaderEndpoint]) -> bytes:
    """The tagged fields that hold only tag 0, the leaders' endpoints, as Produce and Fetch end with."""
    value = unsigned_varint(len(leaders) + 1)
    for node_id, host, port, rack in leaders:
        value += _INT32.pack(node_id) + compact_string(host) + _INT32.pack(port)
        value += (b"\0" if rack is None else compact_string(rack)) + b"\0"
    return b"\x01\x00" + unsigned_varint(len(value)) + value


def legacy_string(text: str) -> bytes:
    """A string with an int16 length."""
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def compact_string(text: str) -> bytes:
    """A string with a varint of its length plus one."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data
