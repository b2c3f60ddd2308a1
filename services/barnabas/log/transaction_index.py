"""`.txnindex`: the aborted transactions whose marker lies in a segment (KIP-98); no file while there are none.

Entries of 34 bytes: version (int16, 0), producer id, first offset, last offset (the marker's), last stable offset
(all int64).
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from barnabas.log.segment_file import read_whole, remove_quietly, write_at

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` on do not count, up to the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Owner of one segment's list of aborted transactions; read once, then kept while the segment is open."""

    __slots__ = ("_entries", "path")

    suffix = ".txnindex"

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def entries(self) -> list[AbortedTransaction]:
        """All entries in the order of their markers; a cut last entry is left out."""
        if self._entries is None:
            try:
                data = read_whole(self.path)
            except FileNotFoundError:
                data = b""
            whole = len(data) - len(data) % _ENTRY.size
            self._entries = [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Add the transaction, on disk as well; markers come in rising order. Raises OSError."""
        entries = self.entries()
        if entries and entries[-1].last_offset >= aborted.last_offset:
            return  # replayed after a restart: it is there already
        write_at(self.path, len(entries) * _ENTRY.size, _ENTRY.pack(_VERSION, *aborted))
        entries.append(aborted)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker lies at or after `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if not kept:
            self.clear()
        elif len(kept) < len(self.entries()):
            write_at(self.path, len(kept) * _ENTRY.size, b"")
            self._entries = kept

    def clear(self) -> None:
        """No aborted transactions, and no file."""
        self._entries = []
        remove_quietly(self.path)

    def exists(self) -> bool:
        return os.path.exists(self.path)
