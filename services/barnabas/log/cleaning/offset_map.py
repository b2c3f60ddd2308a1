"""From a record's key to the last offset at which it stands: what compaction decides by.

Keys are held as 16-byte digests, as in Kafka, whatever their size: at 128 bits two keys that meet are not a matter
of this world.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 168
"""Memory for one key: digest, offset and its share of the table while that is being enlarged."""
DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024
"""Kafka's default of log.cleaner.dedupe.buffer.size."""
_DIGEST_BYTES = 16


class OffsetMap:
    """Owner of the last offsets of a section's keys; `keys_max` of them at the most, and one batch's more."""

    __slots__ = ("_offsets", "keys_max", "latest_offset")

    def __init__(self, buffer_bytes: int = DEDUPE_BUFFER_BYTES) -> None:
        self.keys_max = max(buffer_bytes // ENTRY_BYTES, 1)
        self.latest_offset = -1
        """The map knows every key up to this offset of the section, and none behind it."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch is to be added."""
        return len(self._offsets) >= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        """`key` stands at `offset`; offsets come in rising order."""
        self._offsets[blake2b(key, digest_size=_DIGEST_BYTES).digest()] = offset

    def get(self, key: bytes) -> int:
        """The last offset of `key`, or -1 when the section does not have it."""
        return self._offsets.get(blake2b(key, digest_size=_DIGEST_BYTES).digest(), -1)
