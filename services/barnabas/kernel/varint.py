"""Unsigned variable-length integers, as Kafka's flexible versions (KIP-482) and protobuf write them alike."""

from __future__ import annotations

from typing import Final

_ONE_BYTE: Final = [bytes([value]) for value in range(0x80)]


def unsigned_varint(value: int) -> bytes:
    """`value` in groups of seven bits, lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
