"""The part of a partition's log that lets compaction put new segments in the place of old ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log import segment_swap
from barnabas.log.batch_filter import LastRecord
from barnabas.log.errors import storage_errors
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.loader import LoadedLog
from barnabas.log.producer_state import ProducerState
from barnabas.log.readable_log import ReadableLog
from barnabas.log.segment import Segment, remove_marked
from barnabas.log.segment_factory import SegmentFactory
from barnabas.log.segment_file import sync_directory


class CleaningView(NamedTuple):
    """What one cleaning starts from."""

    segments: tuple[Segment, ...]
    truncations: int
    factory: SegmentFactory
    last_records: dict[int, LastRecord]


class ReplaceableLog(ReadableLog):
    """Owner of the lock that every change takes, and of how far the log is compacted."""

    def __init__(
        self, directory: str, factory: SegmentFactory, epochs: LeaderEpochCache, loaded: LoadedLog
    ) -> None:
        super().__init__(directory, factory, epochs, loaded)
        self.producer_state: ProducerState = loaded.producer_state
        self.first_dirty_offset = -1
        """Up to here the log has been compacted (the cleaner's checkpoint); -1 when it never was."""
        self._truncations = 0
        self._is_closed = False
        self._lock = threading.RLock()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def begin_cleaning(self) -> CleaningView:
        """The segments as they are now, and where the producers' sequences stand."""
        with self._lock:
            last_records = {
                producer_id: LastRecord(
                    entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
                )
                for producer_id, entry in self.producer_state.producers.items()
            }
            return CleaningView(self._segments, self._truncations, self._factory, last_records)

    def still_holds(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Whether `old` are neighbours and finished segments of the log, unchanged since `view`."""
        with self._lock:
            if self._is_closed or view.truncations != self._truncations or old[0] not in self._segments:
                return False
            first = self._segments.index(old[0])
            return self._segments[first:-1][: len(old)] == tuple(old)

    def replace_segments(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Put the `.cleaned` segment of `old[0]`'s name, durable already, in the place of `old`. For a thread.

        False, with nothing changed, when `old` is not what the log has any more: retention, a truncation or the
        closing of the log came between. Raises KAFKA_STORAGE_ERROR when the disk refuses; the log then reads on
        from the old files, and the next opening finishes the swap or forgets it.
        """
        with storage_errors(self.directory):
            with self._lock:
                if not self.still_holds(view, old):
                    return False
                segments = self._segments
                first = segments.index(old[0])
                for segment in old:
                    segment.retire()
                marked = segment_swap.swap_files(self.directory, old[0].base_offset, old)
                cleaned = self._factory.find(old[0].base_offset)
                self._segments = (*segments[:first], cleaned, *segments[first + len(old) :])
            sync_directory(self.directory)
            remove_marked(marked)
            return True

    def finish_cleaning(self, view: CleaningView, end_offset: int) -> None:
        """The log is compacted up to `end_offset`, unless it was truncated meanwhile."""
        with self._lock:
            if view.truncations == self._truncations:
                self.first_dirty_offset = end_offset
