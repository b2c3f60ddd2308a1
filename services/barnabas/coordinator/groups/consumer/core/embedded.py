"""What members of the classic protocol say inside JoinGroup, and are told inside SyncGroup: Kafka's
ConsumerProtocolSubscription and ConsumerProtocolAssignment.

Both begin with a version, 0 to 3; a newer one is read as 3, since each only adds to the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.record_reader import RecordReader

VERSION_MAX: Final = 3
NO_GENERATION: Final = -1
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_USER_DATA: Final = _INT32.pack(-1)

PartitionsByName = Mapping[str, frozenset[int]]


class Malformed(Exception):
    """Bytes that are none of what they should be."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has."""

    topics: tuple[str, ...]
    owned: PartitionsByName
    """Nothing where the version says nothing of it: then the member gives up everything when it joins again."""
    generation: int
    """Of which generation it has that; NO_GENERATION where it says nothing of it."""
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    """Raises Malformed."""
    try:
        reader = RecordReader(data)
        version = _version(reader)
        topics = tuple(reader.string() for _ in range(_count(reader)))
        _read_user_data(reader)
        owned = _read_partitions(reader) if version >= _OWNED_FROM else {}
        (generation,) = reader.unpack(_INT32) if version >= _GENERATION_FROM else (NO_GENERATION,)
        rack_id = reader.nullable_string() if version >= _RACK_FROM else None
    except UnreadableRecord as error:
        raise Malformed(f"a subscription: {error}") from error
    return Subscription(topics, owned, generation, rack_id or None)


def read_topics(data: bytes) -> tuple[str, ...]:
    """The topics alone, whatever follows them. Raises Malformed."""
    try:
        reader = RecordReader(data)
        _version(reader)
        return tuple(reader.string() for _ in range(_count(reader)))
    except UnreadableRecord as error:
        raise Malformed(f"a subscription: {error}") from error


def read_assignment(data: bytes) -> tuple[PartitionsByName, bytes]:
    """The partitions, and what the assignor said beside them. Raises Malformed."""
    try:
        reader = RecordReader(data)
        _version(reader)
        return _read_partitions(reader), _read_user_data(reader)
    except UnreadableRecord as error:
        raise Malformed(f"an assignment: {error}") from error


def version_of(subscription: bytes) -> int:
    """In which version a member wants its assignment. Raises Malformed."""
    try:
        return _version(RecordReader(subscription))
    except UnreadableRecord as error:
        raise Malformed(f"a subscription: {error}") from error


def write_assignment(partitions: Mapping[str, Collection[int]], version: int) -> bytes:
    """The bytes of an assignment; they are the same in every version but for its number."""
    parts = [_INT16.pack(version), _INT32.pack(len(partitions))]
    for name, numbers in sorted(partitions.items()):
        text = name.encode()
        parts += (_INT16.pack(len(text)), text, _INT32.pack(len(numbers)))
        parts.append(struct.pack(f">{len(numbers)}i", *sorted(numbers)))
    return b"".join((*parts, _NO_USER_DATA))


def _version(reader: RecordReader) -> int:
    version = reader.int16()
    if version < 0:
        raise UnreadableRecord(f"version {version}")
    return min(version, VERSION_MAX)


def _count(reader: RecordReader) -> int:
    (count,) = reader.unpack(_INT32)
    if count < 0:
        raise UnreadableRecord(f"{count} topics")
    return int(count)


def _read_partitions(reader: RecordReader) -> dict[str, frozenset[int]]:
    return {reader.string(): frozenset(reader.int32s()) for _ in range(reader.array_length())}


def _read_user_data(reader: RecordReader) -> bytes:
    (length,) = reader.unpack(_INT32)
    (data,) = reader.unpack(struct.Struct(f"{max(length, 0)}s"))
    return bytes(data)
