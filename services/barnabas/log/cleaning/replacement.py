"""The part of a partition's log that lets compaction put new segments in the place of old ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log.cleaning import segment_swap
from barnabas.log.cleaning.batch_filter import LastBatches
from barnabas.log.errors import storage_errors
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.segments.segment import Segment, remove_marked
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.small_files import SyncError, sync_directory
from barnabas.log.trust import Trust


class CleaningView(NamedTuple):
    """What one cleaning starts from."""

    truncations: int
    factory: SegmentFactory
    last_batches: dict[int, LastBatches]


class SegmentReplacement:
    """Owner of how far the log is compacted."""

    def __init__(
        self,
        state: LogState,
        locks: Locks,
        trust: Trust,
        producers: LogProducers,
        first_dirty_offset: int,
    ) -> None:
        self.first_dirty_offset = first_dirty_offset
        """Up to here the log has been compacted (the cleaner's checkpoint); -1 when it never was. 0 also where it was
        cut back into a gap that its leader's cleaner had left."""
        self._is_paused = False
        self._state = state
        self._locks = locks
        self._trust = trust
        self._producers = producers

    def pause(self) -> None:
        """Put nothing in until `go_on`: somebody copies the log, and may be between a record and its tombstone. A
        cleaning that is under way ends with nothing changed. For a thread.
        """
        with self._locks.upkeep:
            self._is_paused = True

    def go_on(self) -> None:
        """The log may be compacted again."""
        self._is_paused = False

    def begin(self) -> tuple[CleaningView, tuple[Segment, ...]]:
        """Where the producers' sequences stand, and the segments as they are now: those that are replaced keep file and
        disk space for as long as somebody has them.
        """
        with self._locks.hold_log_end():
            last_batches = {
                producer_id: LastBatches(entry.batches.copy(), entry.producer_epoch)
                for producer_id, entry in self._producers.state.producers.items()
            }
            state = self._state
            return CleaningView(state.truncations.count, state.factory, last_batches), state.segments

    def still_holds(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Whether `old` are neighbours and finished segments of the log, unchanged since `view`."""
        segments = self._state.segments
        if (
            self._trust.is_closed
            or self._is_paused
            or view.truncations != self._state.truncations.count
            or old[0] not in segments
        ):
            return False
        first = segments.index(old[0])
        return segments[first:-1][: len(old)] == tuple(old)

    def replace(self, view: CleaningView, old: Sequence[Segment]) -> bool:
        """Put the `.cleaned` segment of `old[0]`'s name, durable already, in the place of `old`. For a thread.

        False, with nothing changed, when `old` is not what the log has any more: retention, a truncation or the
        closing of the log came between. Raises KAFKA_STORAGE_ERROR when the disk refuses: either nothing has
        changed, or the log reads on from the old files, takes no more, and the next opening finishes the swap.
        """
        state = self._state
        with self._locks.upkeep, storage_errors(state.directory):
            self._trust.check_trusted()
            if not self.still_holds(view, old):
                return False
            # The batches that begin an epoch may be among those that go.
            state.epochs.flush(state.end[0])
            self._begin_swap(old)
            try:
                marked = segment_swap.finish_swap(state.files, state.directory, old[0].base_offset, old)
                cleaned = state.factory.find(old[0].base_offset)
            except OSError as error:
                # Whatever else changed files now would meet the next opening, which goes on with the swap.
                self._trust.distrust(error)
                raise
            cleaned.is_flushed = True
            with state.publishing:
                segments = state.segments
                first = segments.index(old[0])
                state.segments = (*segments[:first], cleaned, *segments[first + len(old) :])
            try:
                sync_directory(state.files, state.directory)
            except SyncError as error:
                self._trust.distrust(error)
                raise
            except OSError:
                # It could not be asked. What is to be removed stays for the next opening: until the renames are
                # durable a power cut may bring the old names back.
                state.directory_is_dirty = True
                return True
        remove_marked(state.files, marked)
        return True

    def _begin_swap(self, old: Sequence[Segment]) -> None:
        try:
            for segment in old:
                segment.retire()
            segment_swap.begin_swap(self._state.files, self._state.directory, old[0].base_offset)
        except OSError:
            for segment in old:
                segment.keep()
            raise

    def finish(self, view: CleaningView, end_offset: int) -> None:
        """The log is compacted up to `end_offset`, unless it was truncated meanwhile."""
        with self._state.publishing:
            if view.truncations == self._state.truncations.count:
                self.first_dirty_offset = end_offset
