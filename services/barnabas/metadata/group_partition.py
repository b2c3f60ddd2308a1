"""Which partition of __consumer_offsets a group belongs to.

Kafka's rule, kept so that a log written by either is read by the other: Java's `String.hashCode` of the group id
(over UTF-16 code units, in 32-bit arithmetic), its sign bit cleared, modulo the number of partitions.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import Final

_HASH_MASK: Final = 0xFFFFFFFF
_POSITIVE_MASK: Final = 0x7FFFFFFF
_SHORT_MAX: Final = 100
"""Longer ids are not kept, so that all that are take a few MB at most."""


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, as the unsigned 32-bit number with the same bits."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & _HASH_MASK
    return value


def partition_for_group(group_id: str, partition_count: int) -> int:
    """The partition of __consumer_offsets that owns `group_id`, when that topic has `partition_count`."""
    assert partition_count > 0, "__consumer_offsets has at least one partition"
    value = _hash_of_short(group_id) if len(group_id) <= _SHORT_MAX else java_string_hash(group_id)
    return (value & _POSITIVE_MASK) % partition_count


_hash_of_short = lru_cache(maxsize=10_000)(java_string_hash)
"""A transaction asks several times where its id belongs, a member with each heartbeat where its group does."""
