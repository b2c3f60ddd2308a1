"""The part of a partition's log that grows: appends, rolls, and the producers' state that follows them.

An append on an event loop (`may_block=False`) waits for no thread: it raises WouldBlock where one changes the log's
end, or where more of the disk is needed than one write. All that can fail happens before the batches are written,
or is taken back; after that only memory changes. Files that an append or a roll that failed has left are removed at
once, or, should that fail too, before anything else is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.append import (
    AppendInfo,
    AppendOrigin,
    PreparedBatch,
    assign_offsets,
    check_continues,
    check_producers,
    prepare_follower_batches,
    prepare_leader_batches,
)
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.config import LogConfig
from barnabas.log.errors import WouldBlock, storage_error, storage_errors
from barnabas.log.flushable_log import FlushableLog
from barnabas.log.opening import loader
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.producers import producer_snapshot
from barnabas.log.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.log.segments.segment import AppendedBatch, RollLimits, Segment, remove_marked
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.records.batch import Buffer


class AppendableLog(FlushableLog):
    """Owner of the log's end and of the producer state."""

    def __init__(
        self,
        directory: str,
        factory: SegmentFactory,
        clock: Clock,
        epochs: LeaderEpochCache,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(directory, factory, clock, epochs, loaded)
        self._snapshot_offset = loaded.report.snapshot_offset
        self._limits = _roll_limits(factory.config)
        self._unfinished_roll: Segment | None = None
        self.refused = RefusedSequences()
        """What clients are to send again. Whoever gives up appends before they come here adds to it."""
        self._is_unclear = False
        """Whether files hold what is not of the log: the rest of a write that failed, or of a roll."""

    def update_config(self, config: LogConfig) -> None:
        """Obey other settings from now on; the active segment's index limits change at the next roll."""
        self._factory.config = config
        self._limits = _roll_limits(config)

    # -- appending ----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_block: bool = True,
    ) -> AppendInfo:
        """Check, number and write a batch (a coordinator may send several, appended as one).

        Raises KafkaError: what `records.validate` and `ProducerState.check` refuse, FENCED_LEADER_EPOCH when the
        log has seen a newer epoch, KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was. Without
        `may_block` (on an event loop) raises WouldBlock, the log as it was, when the append needs a new segment or
        anything else of the disk but one write into the page cache.
        """
        now_ms = self._clock.now_ms()
        config = self._factory.config
        prepared = prepare_leader_batches(records, config, origin, now_ms)
        append_time = now_ms if config.is_log_append_time else -1
        if not self._lock.acquire(may_block):
            raise WouldBlock
        try:
            latest_epoch = self.epochs.latest_epoch
            if leader_epoch < latest_epoch or leader_epoch < self._next_epoch:
                raise KafkaError(
                    ErrorCode.fenced_leader_epoch,
                    f"leader epoch {leader_epoch} is older than {max(latest_epoch, self._next_epoch)}",
                )
            repeated = check_producers(self.producer_state, self.refused, prepared, origin)
            if repeated is not None:
                return AppendInfo(
                    repeated.first_offset,
                    repeated.last_offset,
                    repeated.timestamp,
                    self._log_start_offset,
                    True,
                )
            first_offset = self._end[0]
            parts, batches, length = assign_offsets(prepared, first_offset, leader_epoch)
            segment = self._write(parts, batches, length, now_ms, may_block)
            # The batches are in the file: nothing from here on touches the disk, and nothing can fail.
            if leader_epoch > latest_epoch:
                self.epochs.assign(leader_epoch, first_offset)
            self._replay(segment, prepared, batches)
            return AppendInfo(
                first_offset, batches[-1].last_offset, append_time, self._log_start_offset, False
            )
        finally:
            self._end_turn()

    def append_as_follower(self, records: Buffer, *, may_block: bool = True) -> AppendInfo | None:
        """Write the leader's batches as they are; a batch cut at the end is left out, None when none is whole.

        Raises CORRUPT_MESSAGE for a bad batch, OFFSET_OUT_OF_RANGE for offsets that do not continue this log,
        FENCED_LEADER_EPOCH for a batch of an older leader epoch than one that has records here already,
        KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was. WouldBlock as `append_as_leader`.
        """
        prepared, batches, length = prepare_follower_batches(records)
        if not batches:
            return None
        now_ms = self._clock.now_ms()
        if not self._lock.acquire(may_block):
            raise WouldBlock
        try:
            end_offset = self._end[0]
            check_continues(prepared, end_offset, self.epochs.epoch_for_offset(end_offset - 1))
            parts: list[Buffer] = [memoryview(records)[:length]]
            segment = self._write(parts, batches, length, now_ms, may_block)
            # The leader's batches decide: an epoch that this replica began itself and wrote nothing in is not one.
            self.epochs.truncate_from_end(batches[0].first_offset)
            for item in prepared:
                self.epochs.assign(item.header.partition_leader_epoch, item.header.base_offset)
            self._replay(segment, prepared, batches)
            return AppendInfo(
                batches[0].first_offset, batches[-1].last_offset, -1, self._log_start_offset, False
            )
        finally:
            self._end_turn()

    def _write(
        self,
        parts: Sequence[Buffer],
        batches: list[AppendedBatch],
        length: int,
        now_ms: int,
        may_block: bool,
    ) -> Segment:
        """Write the batches at the log's end, which stays where it is; returns the segment that has them now."""
        self._check_writable()
        segment = self._end[1]
        newest = batches[0].max_timestamp
        if len(batches) > 1:
            newest = max([batch.max_timestamp for batch in batches])
        rolls = segment.should_roll(length, batches[-1].last_offset, newest, now_ms, self._limits)
        if (rolls or self._is_unclear) and not may_block:
            raise WouldBlock
        if rolls or self._is_unclear:
            with storage_errors(self.directory):
                if self._is_unclear:
                    self._clear_up()
                if rolls:
                    segment = self._roll(batches[0].first_offset)
        try:
            segment.append(parts, batches, length)
        except OSError as error:
            self._is_unclear = True
            with contextlib.suppress(OSError):
                self._clear_up()
            raise storage_error(self.directory, error) from error
        return segment

    def _replay(self, segment: Segment, prepared: list[PreparedBatch], batches: list[AppendedBatch]) -> None:
        """The batches stand in `segment`: the producers' state follows, then the end that readers see."""
        state, refused = self.producer_state, self.refused
        for item, batch in zip(prepared, batches, strict=True):
            if item.marker is not None:
                completed = state.replay_marker(item.header, item.marker, batch.first_offset)
                loader.record_completion(segment, completed)
            elif not item.header.is_control:
                state.replay(item.header, batch.first_offset, batch.max_timestamp)
                refused.on_written(item.header.producer_id)
            else:
                state.end_offset = batch.last_offset + 1
        self._end = (batches[-1].last_offset + 1, segment, segment.size, self._end[3])

    def _clear_up(self) -> None:
        """Remove what a write or a roll that failed has left. Raises OSError; nothing may be written before it was
        done, or the log would run past a segment that is none, or leave foreign bytes behind its end.
        """
        if self._unfinished_roll is not None:
            self._unfinished_roll.remove_files()
            self._unfinished_roll = None
        self._end[1].remove_rest()
        self._is_unclear = False

    def roll(self) -> None:
        """Begin a new segment now, unless the active one is empty. For a thread."""
        with self._turn(), storage_errors(self.directory):
            if self._end[1].size:
                self._roll(self._end[0])

    def _roll(self, base_offset: int) -> Segment:
        """A new active segment from `base_offset` on, with a producer snapshot at its start.

        Raises OSError: the old segment is then the active one, and the files of the new one are gone again.
        """
        self._check_writable()
        old = self._end[1]
        base_offset = max(base_offset, self._end[0])
        if base_offset == old.base_offset:
            return old
        if self._is_unclear:
            self._clear_up()
        if old.size:
            old.finish()
        new = self._unfinished_roll = self._factory.make_empty(base_offset)
        try:
            new.create_files()
            self._take_snapshot(base_offset, sync=False)
        except OSError:
            self._is_unclear = True
            with contextlib.suppress(OSError):
                self._clear_up()
            raise
        # Nothing can fail from here on.
        self._unfinished_roll = None
        self._directory_is_dirty = True
        with self._publishing:
            # An old one without records has its first offset too far ahead of its base.
            self._segments = (*(self._segments if old.size else self._segments[:-1]), new)
        self._end = (self._end[0], new, 0, self._end[3])
        if old.size:
            old.unpin()
        else:
            with contextlib.suppress(OSError):
                remove_marked(old.mark_deleted())
        return new

    def _take_snapshot(self, offset: int, *, sync: bool) -> None:
        if offset > self._snapshot_offset:
            entries = list(self.producer_state.producers.values())
            producer_snapshot.write_snapshot(self.directory, offset, entries, sync=sync)
            self._snapshot_offset = offset

    # -- transactions and producers ---

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where read_committed consumers stop: the first offset that is not decided, at most the high watermark."""
        state = self.producer_state
        state.on_high_watermark(high_watermark)
        unstable = state.first_unstable_offset()
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        return max(stable, self._log_start_offset)

    def expire_producers(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; returns how many."""
        self.refused.expire(expiration_ms / 1000)
        with self._turn():
            return self.producer_state.expire(self._clock.now_ms(), expiration_ms)


def _roll_limits(config: LogConfig) -> RollLimits:
    return RollLimits(config.segment_bytes, config.roll_ms)
