"""The part of a partition's log that makes it durable, and knows how far it is.

A failed sync is final: the system reports it once, and what it was about may be gone while memory still shows it.
So the log distrusts itself from then on; it takes nothing, its recovery point stays, it cannot be closed properly,
and the next opening checks every batch from the recovery point on.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kernel.clock import Clock
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.errors import storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.replaceable_log import ReplaceableLog
from barnabas.log.segments.segment import SNAPSHOT_SUFFIX, Segment
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.segments.segment_file import SyncError, sync_directory, sync_path


class FlushableLog(ReplaceableLog):
    """Owner of the recovery point: everything before it is on disk."""

    def __init__(
        self,
        directory: str,
        factory: SegmentFactory,
        clock: Clock,
        epochs: LeaderEpochCache,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(directory, factory, epochs, loaded)
        self.recovery_point = loaded.recovery_point
        self.flush_times = FlushTimes()
        """Where syncs are counted; a log directory puts those of its node here."""
        self._clock = clock
        self._last_flush_ms = clock.now_ms()
        for segment in loaded.segments[: len(loaded.segments) - loaded.report.segments_checked]:
            segment.is_flushed = True

    @property
    def unflushed_records(self) -> int:
        """Offsets past the recovery point, against flush.messages."""
        return self._end[0] - self.recovery_point

    @property
    def is_finished_segment_unflushed(self) -> bool:
        """Whether `flush_finished` has something to do: a segment was rolled since."""
        return self._end[1].base_offset > self.recovery_point

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a `flush`."""
        waiting = self.unflushed_records
        config = self._factory.config
        return waiting >= config.flush_messages or (
            waiting > 0 and now_ms - self._last_flush_ms >= config.flush_ms
        )

    def flush(self) -> int:
        """Make everything up to the present end durable; returns the new recovery point. For a thread.

        Raises KAFKA_STORAGE_ERROR when the disk refuses: what was not synced may be lost. After a failed sync it
        raises always, and when the log is closed: what has its names on disk may be another log.
        """
        with self._upkeep:
            self._check_open()
            end_offset, active, _, generation = self._end
            return self._flush_to(end_offset, self._segments, active, generation)

    def flush_finished(self) -> int:
        """Make every finished segment durable, so that a crash leaves only the active one to be checked; returns the
        new recovery point. For a thread, after each roll. Raises as `flush`.
        """
        with self._upkeep:
            self._check_open()
            _, active, _, generation = self._end
            return self._flush_to(active.base_offset, self._segments, None, generation)

    def _flush_to(
        self, offset: int, segments: Sequence[Segment], active: Segment | None, generation: int
    ) -> int:
        """Sync what holds the offsets before `offset`: the finished ones of `segments`, and `active` if given."""
        with storage_errors(self.directory), self.flush_times.measure():
            self._check_trusted()
            try:
                for segment in segments:
                    # The finished segments before `offset` and no more: others may be rolled meanwhile.
                    if segment.base_offset < offset and segment is not active and not segment.is_flushed:
                        segment.sync()
                if active is not None and active.size and not active.is_flushed:
                    active.sync_data()
                self.epochs.flush()
                if self._directory_is_dirty:
                    # Before the sync: what is created meanwhile is left for the next one.
                    self._directory_is_dirty = False
                    sync_path(self._end[1].path(SNAPSHOT_SUFFIX))
                    sync_directory(self.directory)
            except SyncError as error:
                self._distrust(error)
                raise
            except OSError:
                self._directory_is_dirty = True
                raise
            with self._publishing:
                if self._end[3] == generation:
                    self.recovery_point = max(self.recovery_point, offset)
                self._last_flush_ms = self._clock.now_ms()
                return self.recovery_point
