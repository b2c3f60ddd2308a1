"""The part of a partition's log that makes it durable, and knows how far it is. A failed sync is final: see `Trust`."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from barnabas.log.checkpoints.partition_metadata import FILE_NAME as PARTITION_METADATA
from barnabas.log.errors import storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.segments.segment import SNAPSHOT_SUFFIX, Segment
from barnabas.log.small_files import SyncError, sync_directory, sync_path
from barnabas.log.trust import Trust


class LogFlusher:
    """Owner of the recovery point: everything before it is on disk."""

    def __init__(
        self,
        state: LogState,
        locks: Locks,
        trust: Trust,
        loaded: LoadedLog,
        flush_times: FlushTimes,
        is_placed: bool,
    ) -> None:
        """`is_placed` says that the file which tells whose log it is is known to be on disk."""
        self.recovery_point = loaded.recovery_point
        self._state = state
        self._locks = locks
        self._trust = trust
        self._flush_times = flush_times
        self._is_placed = is_placed
        for segment in loaded.segments[: len(loaded.segments) - loaded.report.segments_checked]:
            segment.is_flushed = not segment.are_indexes_doubtful

    @property
    def recovery_checkpoint(self) -> int:
        """The recovery point as it may be written down: where a crash has everything before it checked that the disk
        may not have, indexes included.

        It lies before the recovery point, by one, where that is the end of a segment whose indexes are not on the disk
        yet: once the next segment begins there, nobody would look at that one again.
        """
        point, segments = self.recovery_point, self._state.segments
        holding = bisect.bisect_left(segments, point, key=lambda each: each.base_offset) - 1
        return point if holding < 0 or segments[holding].is_flushed else point - 1

    def flush(self) -> int:
        """Make everything up to the present end durable; returns the new recovery point. For a thread.

        Raises KAFKA_STORAGE_ERROR when the disk refuses: what was not synced may be lost. After a failed sync it
        raises always, and when the log is closed: what has its names on disk may be another log.
        """
        with self._locks.upkeep:
            self._trust.check_open()
            end_offset, active, _, generation = self._state.end
            return self.flush_to(end_offset, self._state.segments, active, generation)

    def flush_finished(self) -> int:
        """Make every finished segment durable, so that a crash leaves only the active one to be checked; returns the
        new recovery point. For a thread, after each roll. Raises as `flush`.
        """
        with self._locks.upkeep:
            self._trust.check_open()
            _, active, _, generation = self._state.end
            return self.flush_to(active.base_offset, self._state.segments, None, generation)

    def sync_before_roll(self) -> None:
        """What flush.messages asks to have on the disk by now is there before anything stands behind it in another
        file; with the lock of the end. Raises OSError, and KAFKA_STORAGE_ERROR where a sync beside it failed.

        Within one file recovery cuts behind what is lost. But nothing says which of two files reaches the disk first:
        syncs that many appends share may still be under way when the power goes, and a later batch of a producer would
        be there without the one before it.
        """
        state, point = self._state, self.recovery_point
        if state.end[0] - point < state.factory.config.flush_messages:
            return
        segments = state.segments
        holding = bisect.bisect_right(segments, point, key=lambda each: each.base_offset) - 1
        try:
            with self._flush_times.measure():
                for segment in segments[max(0, holding) :]:
                    self._sync_if_there(segment)
        except SyncError as error:
            self._trust.distrust(error)
            raise
        self._trust.check_trusted()  # a sync that was waited for may have failed, which is reported once

    def _sync_if_there(self, segment: Segment) -> None:
        """Retention, which the lock of the end does not keep away, may just have taken the segment."""
        try:
            segment.sync_data()
        except FileNotFoundError:
            if segment in self._state.segments:
                raise

    def flush_to(
        self, offset: int, segments: Sequence[Segment], active: Segment | None, generation: int
    ) -> int:
        """Sync what holds the offsets before `offset`: the finished ones of `segments`, and `active` if given, as they
        were after `generation` truncations; with the lock of upkeep. Returns and raises as `flush`.
        """
        state = self._state
        with storage_errors(state.directory), self._flush_times.measure():
            self._trust.check_trusted()
            try:
                for segment in segments:
                    # The finished segments before `offset` and no more: others may be rolled meanwhile.
                    if segment.base_offset < offset and segment is not active and not segment.is_flushed:
                        segment.sync()
                if active is not None and active.size and not active.is_flushed:
                    active.sync_data()
                state.epochs.flush(state.end[0])
                if state.directory_is_dirty:
                    # Before the sync: what is created meanwhile is left for the next one.
                    state.directory_is_dirty = False
                    sync_path(state.files, state.end[1].path(SNAPSHOT_SUFFIX))
                    sync_directory(state.files, state.directory)
                if not self._is_placed:
                    sync_path(state.files, f"{state.directory}/{PARTITION_METADATA}")
                    self._is_placed = True
            except SyncError as error:
                self._trust.distrust(error)
                raise
            except OSError:
                state.directory_is_dirty = True
                raise
            self._trust.check_trusted()  # a roll may have failed to sync beside this
            with state.publishing:
                if state.end[3] == generation:
                    self.recovery_point = max(self.recovery_point, offset)
                return self.recovery_point
