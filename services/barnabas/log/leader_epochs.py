"""`leader-epoch-checkpoint`: at which offset each leader epoch of a partition began (KIP-101, KIP-279)."""

from __future__ import annotations

import bisect
import os
from typing import NamedTuple

from barnabas.log.checkpoints import read_checkpoint, write_checkpoint

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class EpochEntry(NamedTuple):
    """Epoch `epoch` wrote from `start_offset` on."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Owner of the list of epochs, rising in epoch and in start offset; the file follows every change.

    The file is replaced but not synced; the log syncs it before its recovery point moves, and recovery reads the
    epochs past that point from the batches.
    """

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        self.is_dirty = False
        self._entries = [
            EpochEntry(int(epoch), int(start)) for epoch, start in read_checkpoint(self.path, columns=2)
        ]

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch known, or -1."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` writes from `start_offset` on; entries that contradict this are dropped."""
        if epoch < 0:
            return
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return
        kept = list(self._entries)
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept.pop()
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers: the greatest epoch known that is at most the one
        asked for, and where it ended. (-1, -1) when the epoch is unknown and newer than all.
        """
        if epoch == NO_EPOCH or epoch > self.latest_epoch:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        after = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[after].start_offset
        return (self._entries[after - 1].epoch if after else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        after = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that began at or after `end_offset`."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended before `start_offset`; the one that holds it begins there from now on."""
        after = bisect.bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if after:
            self._replace([EpochEntry(self._entries[after - 1].epoch, start_offset), *self._entries[after:]])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        """The file first: when it cannot be written the list stays what the file says. Raises OSError."""
        if entries != self._entries:
            rows = [(str(entry.epoch), str(entry.start_offset)) for entry in entries]
            write_checkpoint(self.path, rows, sync=False)
            self._entries = entries
            self.is_dirty = True
