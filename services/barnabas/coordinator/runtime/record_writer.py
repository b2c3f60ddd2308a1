"""Writing the fields of a record, one after the other: what `record_reader` reads, in flexible versions (KIP-482).

By hand for records of which one decision writes thousands (a new assignment is a record for each member), or a second
thousands: a transaction is three.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

_INT16: Final = struct.Struct(">h")


def write_key(key_type: int, *texts: str) -> bytes:
    """A key, which is never flexible: what it is about, and texts that say of whom."""
    parts = [_INT16.pack(key_type)]
    for text in texts:
        data = text.encode()
        parts += (_INT16.pack(len(data)), data)
    return b"".join(parts)


class RecordWriter:
    """Owns the bytes of a value in the making."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def pack(self, layout: struct.Struct, *fields: object) -> None:
        """Fields of fixed sizes."""
        self._parts.append(layout.pack(*fields))

    def string(self, text: str | None) -> None:
        """A text, or null."""
        self.byte_array(None if text is None else text.encode())

    def byte_array(self, data: bytes | None) -> None:
        """Bytes, or null."""
        if data is None:
            self._parts.append(b"\x00")
        else:
            self._parts += (varint(len(data) + 1), data)

    def array_length(self, length: int) -> None:
        """How many elements follow."""
        self._parts.append(varint(length + 1))

    def int32s(self, numbers: Sequence[int]) -> None:
        """An array of them."""
        self.array_length(len(numbers))
        self._parts.append(struct.pack(f">{len(numbers)}i", *numbers))

    def tagged(self, fields: Mapping[int, bytes] | None = None) -> None:
        """The tagged fields that a structure ends with, by their numbers."""
        fields = fields or {}
        self._parts.append(varint(len(fields)))
        for tag, data in sorted(fields.items()):
            self._parts += (varint(tag), varint(len(data)), data)

    def finish(self) -> bytes:
        """All that was written."""
        return b"".join(self._parts)


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
