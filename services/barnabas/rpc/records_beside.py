"""Messages that hold record batches, written and read without copying the batches more than once.

Built from message objects, record bytes would be copied into the message, into the frame and into its encoding; read by
protobuf, into a message and once more out of it. Here only the small fields go through protobuf. A frame is one join of
what was encoded and the records as they were read from the log; at the other end it is walked field by field, and the
records stay where gRPC has put them. It is a frame like any other (protobuf takes a message's fields in any order).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from google.protobuf.message import Message

from barnabas.kernel.varint import unsigned_varint

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5

WALKED_BYTES_MIN: Final = 4096
"""A smaller message is decoded as it is: copying its records costs less than looking for them."""

MessageT = TypeVar("MessageT", bound=Message)


def encode_beside(
    pieces: list[bytes | memoryview],
    tag: bytes,
    fields: Message,
    records_tag: bytes,
    records: bytes | memoryview,
) -> int:
    """Add the field `tag` that holds the message `fields` with `records` in it; returns its size in bytes."""
    encoded = fields.SerializeToString()
    if not records:
        prefix = tag + unsigned_varint(len(encoded)) + encoded
        pieces.append(prefix)
        return len(prefix)
    encoded += records_tag + unsigned_varint(len(records))
    prefix = tag + unsigned_varint(len(encoded) + len(records)) + encoded
    pieces.append(prefix)
    pieces.append(records)
    return len(prefix) + len(records)


def decode_beside(
    message: type[MessageT], records_number: int, frame: bytes, start: int, end: int
) -> tuple[MessageT, bytes | memoryview]:
    """The message between the offsets without its records, and the records; small ones are in the message as well."""
    if end - start < WALKED_BYTES_MIN:
        fields = message.FromString(frame[start:end])
        return fields, getattr(fields, message.DESCRIPTOR.fields_by_number[records_number].name)
    small: list[bytes] = []
    records = memoryview(b"")
    position = start
    for number, value_start, value_end in walk_fields(frame, start, end):
        if number == records_number:
            records = memoryview(frame)[value_start:value_end]
        else:
            small.append(frame[position:value_end])
        position = value_end
    return message.FromString(b"".join(small)), records


def walk_fields(frame: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start of its value, end of its value) of each field of the message between the offsets.

    Raises ValueError or IndexError where there is none.
    """
    while position < end:
        tag, position = read_varint(frame, position)
        wire_type = tag & 7
        if wire_type == _DELIMITED:
            size, position = read_varint(frame, position)
            value_end = position + size
        elif wire_type == _VARINT:
            _, value_end = read_varint(frame, position)
        elif wire_type in (_FIXED32, _FIXED64):
            value_end = position + (4 if wire_type == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire_type} is unknown")
        if value_end > end:
            raise ValueError("a field does not fit in its message")
        yield tag >> 3, position, value_end
        position = value_end


def read_varint(frame: bytes, position: int) -> tuple[int, int]:
    """The number that begins at `position`, and where it ends. Raises IndexError."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
