"""`leader-epoch-checkpoint`: at which offset each leader epoch of a partition began (KIP-101, KIP-279)."""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.log.checkpoints.checkpoint_file import read_checkpoint, write_checkpoint
from barnabas.log.small_files import remove_quietly, sync_directory

FILE_NAME = "leader-epoch-checkpoint"
NO_OFFSET = -1


class EpochEntry(NamedTuple):
    """Epoch `epoch` wrote from `start_offset` on."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Owner of the list of epochs, rising in epoch and in start offset; a reader sees one list or the next.

    The file is written behind, by `flush`: before the recovery point moves, before compaction takes batches away, at
    closing, and at an opening that had to read batches for it. A log that is to begin elsewhere has it removed. So an
    election costs no disk, and a change in memory cannot fail. What a crash loses are epochs of batches past the
    recovery point, which recovery reads from the batches, and epochs that wrote nothing, which nobody can ask for.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = f"{directory}/{FILE_NAME}"
        self._entries = tuple(
            EpochEntry(int(epoch), int(start))
            for epoch, start in read_checkpoint(files, self.path, columns=2)
        )
        self._written: tuple[EpochEntry, ...] | None = self._entries
        """What the file says; None where that is not known."""
        self._changing = threading.Lock()
        self._writing = threading.Lock()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    def flush(self, log_end_offset: int) -> None:
        """Make the file say what is known, durably. For a thread. Raises OSError, SyncError among them.

        An epoch that began at the end has written nothing: every election leaves one in every partition of a node.
        """
        with self._writing:
            entries = tuple(entry for entry in self._entries if entry.start_offset < log_end_offset)
            if entries != self._written:
                self._written = None
                rows = [(str(entry.epoch), str(entry.start_offset)) for entry in entries]
                write_checkpoint(self._files, self.path, rows, sync=True)
                self._written = entries

    @property
    def latest_epoch(self) -> int:
        """The newest epoch known, or -1."""
        entries = self._entries
        return entries[-1].epoch if entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` writes from `start_offset` on; older epochs that wrote nothing before it are dropped.

        An epoch older than the newest known changes nothing: it is over, and what the newer ones wrote stands.
        """
        with self._changing:
            latest = self.latest_epoch
            if epoch < 0 or epoch < latest:
                return
            if epoch == latest and self._entries[-1].start_offset <= start_offset:
                return
            kept = [
                entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset
            ]
            self._entries = (*kept, EpochEntry(epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers: the greatest epoch known that is at most the one
        asked for, and where it ended. (-1, -1) when the epoch is unknown and newer than all.
        """
        entries = self._entries
        latest = entries[-1].epoch if entries else NO_EPOCH
        if epoch == NO_EPOCH or epoch > latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == latest:
            return epoch, log_end_offset
        after = bisect.bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        return (entries[after - 1].epoch if after else epoch), entries[after].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        entries = self._entries
        after = bisect.bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[after - 1].epoch if after else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that began at or after `end_offset`."""
        with self._changing:
            self._entries = tuple(entry for entry in self._entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended before `start_offset`; the one that holds it begins there from now on."""
        with self._changing:
            entries = self._entries
            after = bisect.bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
            if after:
                self._entries = (EpochEntry(entries[after - 1].epoch, start_offset), *entries[after:])

    def put_before(self, starts: Sequence[tuple[int, int]]) -> None:
        """Know of these epochs, each with its first offset, that came before all that is known; neither ever falls.

        What is known stands, but may begin earlier; what does not rise with it is left out.
        """
        with self._changing:
            entries = self._entries
            for entry in (EpochEntry(*start) for start in reversed(starts)):
                first = entries[0] if entries else None
                if first is None or (entry.epoch < first.epoch and entry.start_offset < first.start_offset):
                    entries = (entry, *entries)
                elif entry.epoch == first.epoch and entry.start_offset < first.start_offset:
                    entries = (entry, *entries[1:])
            self._entries = entries

    def take_over(self, entries: tuple[EpochEntry, ...]) -> None:
        """Know these, and nothing else: they are those of a log with the same records."""
        with self._changing:
            self._entries = entries

    def follow(self, directory: str) -> None:
        """The log has its files in `directory` now."""
        with self._writing:
            self.path = f"{directory}/{FILE_NAME}"

    def remove_file(self) -> None:
        """Have the file say nothing, durably; what is known stays. For a thread. Raises OSError, SyncError among them.

        Where a log goes on elsewhere, with epochs that may be lower: what the file says would stand against them.
        """
        with self._writing:
            if self._written != ():
                self._written = None
                remove_quietly(self._files, self.path)
                sync_directory(self._files, os.path.dirname(self.path))
                self._written = ()

    def clear(self) -> None:
        """Know nothing."""
        with self._changing:
            self._entries = ()
