"""Reading the fields of a record, one after the other.

By hand, where kio would refuse a tagged field that it does not know (KIP-482 has such fields so that they can be left
out), and would take memory for an array as long as it claims to be.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from barnabas.coordinator.runtime.kind import UnreadableRecord

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VARINT_BYTES_MAX: Final = 5


class RecordReader:
    """Owns a position in the bytes of a key or a value. Every method raises UnreadableRecord where the bytes end, or
    are none of what is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.is_flexible = False
        """Whether strings and arrays have the lengths of flexible versions, and structures end with tagged fields."""

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed sizes."""
        return layout.unpack(self._take(layout.size))

    def int16(self) -> int:
        """One field, or a version."""
        value: int = self.unpack(_INT16)[0]
        return value

    def string(self) -> str:
        """A text that is not null."""
        text = self.nullable_string()
        if text is None:
            raise UnreadableRecord("a text is null that must not be")
        return text

    def nullable_string(self) -> str | None:
        """A text, or null."""
        length = self._varint() - 1 if self.is_flexible else self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise UnreadableRecord(f"a text is no UTF-8: {error}") from error

    def byte_array(self) -> bytes:
        """Bytes that are not null, in a flexible version."""
        return self._take(self._varint() - 1)

    def array_length(self) -> int:
        """How many elements follow; 0 for null."""
        length: int = self._varint() - 1 if self.is_flexible else self.unpack(_INT32)[0]
        return max(length, 0)

    def int32s(self) -> tuple[int, ...]:
        """An array of them."""
        count = self.array_length()
        return struct.unpack(f">{count}i", self._take(count * _INT32.size))

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields that a structure ends with, by their numbers; none in versions that are not flexible."""
        if not self.is_flexible:
            return {}
        fields = {}
        for _ in range(self._varint()):
            tag = self._varint()
            fields[tag] = self._take(self._varint())
        return fields

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise UnreadableRecord("a length has no end")

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise UnreadableRecord(f"{count} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
