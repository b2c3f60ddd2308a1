"""The part of a partition's log that lets compaction put new segments in the place of old ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.checkpoints.leader_epochs import NO_EPOCH, LeaderEpochCache
from barnabas.log.cleaning import segment_swap
from barnabas.log.cleaning.batch_filter import LastRecord
from barnabas.log.errors import storage_errors
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.readable_log import ReadableLog
from barnabas.log.segments.segment import Segment, remove_marked
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.segments.segment_file import SyncError, sync_directory


class CleaningView(NamedTuple):
    """What one cleaning starts from."""

    segments: tuple[Segment, ...]
    truncations: int
    factory: SegmentFactory
    last_records: dict[int, LastRecord]


class ReplaceableLog(ReadableLog):
    """Owner of the locks, of whether the files can still be trusted, and of how far the log is compacted.

    Taken in this order, and what is behind a comma only by threads that may wait for the disk:

    - `_upkeep`: flush, retention, compaction's swap, truncation, closing: one at a time, over all their disk work.
    - `_lock`: the turn to change the log's end: an append, over its one write; a roll, a truncation, closing. An
      event loop never waits for it: an append that may not block, and an epoch's start, try it.
    - `_publishing`: over a few assignments, never over the disk.
    """

    def __init__(
        self, directory: str, factory: SegmentFactory, epochs: LeaderEpochCache, loaded: LoadedLog
    ) -> None:
        super().__init__(directory, factory, epochs, loaded)
        self.producer_state: ProducerState = loaded.producer_state
        self.first_dirty_offset = -1
        """Up to here the log has been compacted (the cleaner's checkpoint); -1 when it never was."""
        self._is_closed = False
        self._distrusted: KafkaError | None = None
        """Why nothing more may be written: files may be other than memory says, until they are checked again."""
        self._directory_is_dirty = True
        """Whether a name came or went that the disk may not know of."""
        self._upkeep = threading.RLock()
        self._lock = threading.RLock()
        self._publishing = threading.Lock()
        self._next_epoch = NO_EPOCH
        """An epoch that begins as soon as whoever has the turn is done."""

    # -- turns ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the turn to change the log's end, after waiting for it: for a thread."""
        self._lock.acquire()
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        self._lock.release()
        if self._next_epoch != NO_EPOCH:
            self._begin_next_epoch()

    def assign_epoch_start(self, leader_epoch: int) -> None:
        """A new leader epoch begins at the log's end; one older than the newest known changes nothing.

        Never waits: if a thread is appending at this moment, the epoch begins behind what it appends, and appends of
        older epochs are fenced from now on all the same.
        """
        with self._publishing:
            self._next_epoch = max(self._next_epoch, leader_epoch)
        self._begin_next_epoch()

    def _begin_next_epoch(self) -> None:
        # Whoever has the turn looks here after giving it back, so that one of the two gets to it.
        while self._next_epoch != NO_EPOCH and self._lock.acquire(blocking=False):
            try:
                with self._publishing:
                    epoch, self._next_epoch = self._next_epoch, NO_EPOCH
                self.epochs.assign(epoch, self._end[0])
            finally:
                self._lock.release()

    # -- trust ----------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_trusted(self) -> bool:
        """Whether what is on disk is what is in memory; if not, only opening the log anew helps."""
        return self._distrusted is None

    def _check_writable(self) -> None:
        self._check_open()
        self._check_trusted()

    def _check_open(self) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.directory}: the log is closed")

    def _check_trusted(self) -> None:
        if self._distrusted is not None:
            raise self._distrusted

    def _distrust(self, error: BaseException) -> None:
        """From now on nothing is written or vouched for: only opening the log anew, with every check, helps."""
        if self._distrusted is None:
            self._distrusted = KafkaError(
                ErrorCode.kafka_storage_error, f"{self.directory} has to be opened and checked anew: {error}"
            )

    # -- compaction ---------------------------------------------------------------------------------------------

    def begin_cleaning(self) -> CleaningView:
        """The segments as they are now, and where the producers' sequences stand."""
        with self._turn():
            last_records = {
                producer_id: LastRecord(
                    entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
                )
                for producer_id, entry in self.producer_state.producers.items()
            }
            return CleaningView(self._segments, self._truncations.count, self._factory, last_records)

    def still_holds(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Whether `old` are neighbours and finished segments of the log, unchanged since `view`."""
        segments = self._segments
        if self._is_closed or view.truncations != self._truncations.count or old[0] not in segments:
            return False
        first = segments.index(old[0])
        return segments[first:-1][: len(old)] == tuple(old)

    def replace_segments(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Put the `.cleaned` segment of `old[0]`'s name, durable already, in the place of `old`. For a thread.

        False, with nothing changed, when `old` is not what the log has any more: retention, a truncation or the
        closing of the log came between. Raises KAFKA_STORAGE_ERROR when the disk refuses: either nothing has
        changed, or the log reads on from the old files, takes no more, and the next opening finishes the swap.
        """
        with self._upkeep, storage_errors(self.directory):
            self._check_trusted()
            if not self.still_holds(view, old):
                return False
            # The batches that begin an epoch may be among those that go.
            self.epochs.flush()
            self._begin_swap(old)
            try:
                marked = segment_swap.finish_swap(self.directory, old[0].base_offset, old)
                cleaned = self._factory.find(old[0].base_offset)
            except OSError as error:
                # Whatever else changed files now would meet the next opening, which goes on with the swap.
                self._distrust(error)
                raise
            cleaned.is_flushed = True
            with self._publishing:
                segments = self._segments
                first = segments.index(old[0])
                self._segments = (*segments[:first], cleaned, *segments[first + len(old) :])
            try:
                sync_directory(self.directory)
            except SyncError as error:
                self._distrust(error)
                raise
            except OSError:
                # It could not be asked. What is to be removed stays for the next opening: until the renames are
                # durable a power cut may bring the old names back.
                self._directory_is_dirty = True
                return True
        remove_marked(marked)
        return True

    def _begin_swap(self, old: Sequence[Segment]) -> None:
        try:
            for segment in old:
                segment.retire()
            segment_swap.begin_swap(self.directory, old[0].base_offset)
        except OSError:
            for segment in old:
                segment.keep()
            raise

    def finish_cleaning(self, view: CleaningView, end_offset: int) -> None:
        """The log is compacted up to `end_offset`, unless it was truncated meanwhile."""
        with self._publishing:
            if view.truncations == self._truncations.count:
                self.first_dirty_offset = end_offset
