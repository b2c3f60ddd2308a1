"""Making a request's frame safe for the decoder: lengths that do not fit are refused, unknown tagged fields left out.

The decoder makes room for as many items as an array claims to have, before it reads the first: a frame of twenty bytes
could ask for 16 GB. So the frame is walked once along its schema; nothing is kept of it but the offset. The walk also
bounds the number of items of a whole request, because a few bytes on the wire become a hundred in memory. And it cuts
out tagged fields that the schema does not know, which receivers must skip (KIP-482) and the decoder would refuse.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from kio.index import load_request_schema

from barnabas.kernel.varint import unsigned_varint

ITEMS_MAX: Final = 50_000
"""Items of all arrays of one request together: five times the partitions of a large broker. To read a request and to
answer it takes 2 to 16 us an item, in which nothing else is served: so half a second, or less than one at the worst."""

_VARINT_BITS: Final = 35
_LENGTH_MAX: Final = 2**31 - 1
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1

_FIXED_BYTES: Final = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float64": 8,
    "bool": 1, "uuid": 16, "error_code": 2, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip


class OutOfBounds(Exception):
    """A length does not fit in the frame, or is that of null where there is no null, or there are too many items."""


class _Walk:
    """Owns the count of items that one request may still have, and what is to be cut out of its frame."""

    __slots__ = ("cuts", "frame", "items_left")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.items_left = ITEMS_MAX
        self.cuts: list[tuple[int, int, bytes]] = []
        """(start, end, what comes in the place of the bytes between)"""

    def take_items(self, count: int, bytes_min: int, offset: int) -> None:
        self.items_left -= count
        if self.items_left < 0:
            raise OutOfBounds(f"the request has more than {ITEMS_MAX} items")
        if count * bytes_min > len(self.frame) - offset:
            raise OutOfBounds(f"an array of {count} items does not fit in the frame")


Skip = Callable[[_Walk, int], int]
"""Walks over one value that starts at an offset; returns where it ends, which may be past the end of the frame."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Type:
    """How to walk over a type: `size` bytes when that is fixed, else `skip`. `bytes_min` is the least it can take."""

    bytes_min: int
    size: int | None
    skip: Skip


def checked_frame(frame: bytes, offset: int, api_key: int, version: int) -> tuple[bytes, int]:
    """The frame, whose request body starts at `offset`, without tagged fields that the schema does not know; and how
    many items the request has.

    Raises OutOfBounds when the body does not end in the frame.
    """
    walk = _Walk(frame)
    try:
        end = _request_type(api_key, version).skip(walk, offset)
    except (IndexError, struct.error):
        raise OutOfBounds("the frame ends within the request") from None
    if end > len(frame):
        raise OutOfBounds("the frame ends within the request")
    return _cut(frame, walk.cuts) if walk.cuts else frame, ITEMS_MAX - walk.items_left


def _cut(frame: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    position = 0
    for start, end, replacement in sorted(cuts):
        pieces += (frame[position:start], replacement)
        position = end
    return b"".join([*pieces, frame[position:]])


@functools.cache
def _request_type(api_key: int, version: int) -> _Type:
    return _entity(load_request_schema(api_key, version))


def _fixed(size: int) -> _Type:
    return _Type(size, size, lambda _, offset: offset + size)


@functools.cache
def _entity(schema: Any) -> _Type:
    """A structure: its fields one after the other, in flexible versions followed by tagged fields (KIP-482)."""
    hints, is_flexible = typing.get_type_hints(schema), bool(schema.__flexible__)
    plain: list[_Type] = []
    tagged: dict[int, _Type] = {}
    for field in dataclasses.fields(schema):
        walked = _field(
            hints[field.name], field.metadata.get("kafka_type"), is_flexible, "tag" in field.metadata
        )
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walked
        else:
            plain.append(walked)
    if is_flexible:
        plain.append(_Type(1, None, functools.partial(_skip_tagged_fields, tagged)))
    return _sequence(plain)


def _sequence(members: Sequence[_Type]) -> _Type:
    bytes_min = sum(member.bytes_min for member in members)
    if all(member.size is not None for member in members):
        return _fixed(bytes_min)
    # Neighbours of fixed size are stepped over at once.
    skips: list[Skip] = []
    run = 0
    for member in members:
        if member.size is not None:
            run += member.size
            continue
        if run:
            skips.append(_fixed(run).skip)
            run = 0
        skips.append(member.skip)
    if run:
        skips.append(_fixed(run).skip)

    def skip(walk: _Walk, offset: int) -> int:
        for skip_member in skips:
            offset = skip_member(walk, offset)
        return offset

    return _Type(bytes_min, None, skip)


def _field(hint: Any, kafka_type: str | None, is_flexible: bool, is_tagged: bool) -> _Type:
    kind, is_array, is_nullable = _unwrap(hint)
    if kafka_type is None:
        element = _entity(kind)
        if is_nullable and not is_array and not is_tagged:
            return _nullable(element)
    elif kafka_type in _FIXED_BYTES:
        element = _fixed(_FIXED_BYTES[kafka_type])
    else:
        element = _text_or_bytes(kafka_type, is_flexible, is_nullable and not is_array)
    return _array(element, is_flexible, is_nullable) if is_array else element


def _nullable(element: _Type) -> _Type:
    """A structure that may be null: one byte says whether it follows."""

    def skip(walk: _Walk, offset: int) -> int:
        marker = walk.frame[offset]
        return element.skip(walk, offset + 1) if marker < 0x80 else offset + 1

    return _Type(1, None, skip)


def _text_or_bytes(kafka_type: str, is_flexible: bool, is_nullable: bool) -> _Type:
    read_length = _length_reader(is_flexible, is_nullable, _INT16 if kafka_type == "string" else _INT32)

    def skip(walk: _Walk, offset: int) -> int:
        size, offset = read_length(walk.frame, offset)
        return offset + size

    return _Type(1, None, skip)


def _array(element: _Type, is_flexible: bool, is_nullable: bool) -> _Type:
    assert element.bytes_min > 0, "an item without bytes could be claimed without end"
    bytes_min, size, skip_element = element.bytes_min, element.size, element.skip
    read_length = _length_reader(is_flexible, is_nullable, _INT32)

    def skip(walk: _Walk, offset: int) -> int:
        count, offset = read_length(walk.frame, offset)
        walk.take_items(count, bytes_min, offset)
        if size is not None:
            return offset + count * size
        for _ in range(count):
            offset = skip_element(walk, offset)
        return offset

    return _Type(1, None, skip)


def _length_reader(
    is_flexible: bool, is_nullable: bool, plain: struct.Struct
) -> Callable[[bytes, int], tuple[int, int]]:
    """A function (frame, offset) -> (length, where what it counts starts); null has no length."""
    least = _NULL if is_nullable else 0

    def read_compact(frame: bytes, offset: int) -> tuple[int, int]:
        length_and_one, offset = _read_varint(frame, offset)
        if length_and_one <= least:
            raise OutOfBounds("null where there is no null")
        return max(0, length_and_one - 1), offset

    def read_plain(frame: bytes, offset: int) -> tuple[int, int]:
        (length,) = plain.unpack_from(frame, offset)
        if length < least:
            raise OutOfBounds(f"a length is {length}")
        return max(0, length), offset + plain.size

    return read_compact if is_flexible else read_plain


def _skip_tagged_fields(tagged: dict[int, _Type], walk: _Walk, offset: int) -> int:
    start = offset
    count, offset = _read_varint(walk.frame, offset)
    if not count:
        return offset
    walk.take_items(count, 2, offset)
    cuts, known, count_end = walk.cuts, 0, offset
    for _ in range(count):
        field_start = offset
        tag, size_start = _read_varint(walk.frame, offset)
        size, size_end = _read_varint(walk.frame, size_start)
        offset = size_end + size
        if tag not in tagged:
            cuts.append((field_start, offset, b""))
            continue
        known += 1
        cuts_before = len(cuts)
        if tagged[tag].skip(walk, size_end) != offset:
            raise OutOfBounds(f"tagged field {tag} does not have the size that it claims")
        if len(cuts) > cuts_before:
            shrunk = sum(end - begin - len(by) for begin, end, by in cuts[cuts_before:])
            cuts.append((size_start, size_end, unsigned_varint(size - shrunk)))
    if known < count:
        cuts.append((start, count_end, unsigned_varint(known)))
    return offset


def _read_varint(frame: bytes, offset: int) -> tuple[int, int]:
    byte = frame[offset]
    if byte < 0x80:
        return byte, offset + 1
    value = byte & 0x7F
    for shift in range(7, _VARINT_BITS, 7):
        offset += 1
        byte = frame[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _LENGTH_MAX:
                break
            return value, offset + 1
    raise OutOfBounds("a length is above what an int32 can hold")


def _unwrap(hint: Any) -> tuple[Any, bool, bool]:
    """(element type, is it an array, may it be null) of a kio type hint such as `tuple[X, ...] | None`."""
    is_nullable = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
        is_nullable = True
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True, is_nullable
    return hint, False, is_nullable
