"""What an offset index and a time index share: sorted entries of a fixed size, in memory and on disk.

The entries of an open segment are held in memory (8 or 12 bytes for 4 KiB of log) and written behind: when the
segment rolls, when the finished segment is flushed (before the recovery point moves past it) and when it closes.
Recovery builds those of the segments past the recovery point anew.
"""

from __future__ import annotations

import struct

from barnabas.kernel.files import Files
from barnabas.log.small_files import exists, read_whole, write_at

_UNKNOWN = -1


class IndexFile:
    """Owner of one index's entries. Not locked: entries are changed by whoever holds the partition log's lock, the
    file by whoever holds the segment's.
    """

    __slots__ = ("_files", "_is_cut", "_written", "base_offset", "bytes_max", "entries", "path")

    entry: struct.Struct
    suffix: str

    def __init__(
        self, files: Files, path: str, base_offset: int, bytes_max: int, entries: bytes = b""
    ) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.bytes_max = bytes_max
        self.entries = bytearray(entries)
        self._written = len(entries)
        self._is_cut = False

    def __len__(self) -> int:
        return len(self.entries) // self.entry.size

    @property
    def entries_max(self) -> int:
        return self.bytes_max // self.entry.size

    @property
    def is_full(self) -> bool:
        return len(self) >= self.entries_max

    @property
    def is_written(self) -> bool:
        """Whether the file has all entries, and no others."""
        return self._written == len(self.entries) and not self._is_cut

    def flush(self) -> None:
        """Write the entries that the file does not have yet, and cut whatever stands behind them. Entries may be
        added meanwhile, by another thread; raises OSError, after which the same is written again.
        """
        end, start = len(self.entries), max(self._written, 0)
        if not end and _is_empty(self._files, self.path):
            self._written, self._is_cut = 0, False
        elif end != self._written or self._is_cut or not exists(self._files, self.path):
            write_at(self._files, self.path, start, bytes(self.entries[start:end]))
            self._written, self._is_cut = end, False

    def clear(self) -> None:
        """Forget all entries; the file follows with the next `flush`."""
        self._keep(0)

    def forget_file(self) -> None:
        """What the file holds is not known: the next `flush` writes all entries."""
        self._written = _UNKNOWN

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries; the file follows with the next `flush`, or is built anew after a crash."""
        size = count * self.entry.size
        del self.entries[size:]
        self._written = min(self._written, size)
        self._is_cut = True

    def _count_not_after(self, wanted: int, field: int) -> int:
        """How many entries have `field` at most `wanted`: entries rise in every field."""
        unpack, size, entries = self.entry.unpack_from, self.entry.size, self.entries
        low, high = 0, len(entries) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] <= wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _at(self, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self.entries, number * self.entry.size)
        return first, second


def _is_empty(files: Files, path: str) -> bool:
    try:
        return files.stat(path).st_size == 0
    except FileNotFoundError:
        return False


def read_entries(files: Files, path: str, entry_size: int) -> bytes | None:
    """The file's bytes, or None when it is missing or its size is not a whole number of entries."""
    try:
        data = read_whole(files, path)
    except FileNotFoundError:
        return None
    return data if len(data) % entry_size == 0 else None
