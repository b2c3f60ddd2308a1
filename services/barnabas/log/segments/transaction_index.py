"""`.txnindex`: the aborted transactions whose marker lies in a segment (KIP-98); no file while there are none.

Written behind like the other indexes: an append only adds to memory, so that nothing can fail once the marker is in
the log. Recovery finds the transactions past the recovery point again while it replays the producers.

Entries of 34 bytes: version (int16, 0), producer id, first offset, last offset (the marker's), last stable offset
(all int64).
"""

from __future__ import annotations

import struct
import threading
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.small_files import read_whole, remove_quietly, write_at

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` on do not count, up to the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Owner of one segment's list of aborted transactions; read once, then kept, also while the segment is not open."""

    __slots__ = ("_entries", "_files", "_is_written", "_reading", "path")

    suffix = ".txnindex"

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._is_written = True
        self._reading = threading.Lock()

    def entries(self, *, nowait: bool = False) -> list[AbortedTransaction]:
        """All entries in the order of their markers; a cut last entry is left out.

        With `nowait` raises BlockingIOError when they have to be read from the file.
        """
        entries = self._entries
        if entries is None:
            if nowait:
                raise BlockingIOError("the transaction index is not in memory")
            # One at a time: who comes late with what the file had must not undo what was dropped or added since.
            with self._reading:
                entries = self._entries
                if entries is None:
                    entries = self._entries = self._read()
        return entries

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = read_whole(self._files, self.path)
        except FileNotFoundError:
            data = b""
        whole = len(data) - len(data) % _ENTRY.size
        return [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]

    def start_empty(self) -> None:
        """The segment is new: there is nothing to be read."""
        self._entries = []

    def append(self, aborted: AbortedTransaction) -> None:
        """Add the transaction; markers come in rising order. Does not touch the disk once `entries` were read."""
        entries = self.entries()
        if entries and entries[-1].last_offset >= aborted.last_offset:
            return  # replayed after a restart: it is there already
        entries.append(aborted)
        self._is_written = False

    def flush(self) -> None:
        """Write the entries where they have changed. Raises OSError, after which the same is written again."""
        if self._is_written:
            return
        # Before the entries are looked at: one that is added meanwhile is written the next time.
        self._is_written = True
        try:
            entries = list(self.entries())
            if entries:
                write_at(
                    self._files, self.path, 0, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
                )
            else:
                remove_quietly(self._files, self.path)
        except BaseException:
            self._is_written = False
            raise

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker lies at or after `offset`; the file follows with the next `flush`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()):
            self._entries = kept
            self._is_written = False

    def clear(self) -> None:
        """No aborted transactions; the file goes with the next `flush`."""
        self._entries = []
        self._is_written = False
