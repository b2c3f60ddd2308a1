"""The log of one partition: segments in a directory, and the one place that changes them.

Any method may be called from any thread. One lock serialises every change; it is never held over an fsync, a
removal or a long scan, except while a log is truncated. Reading is `ReadableLog`'s, compaction's swap of segments
`ReplaceableLog`'s.
"""

from __future__ import annotations

import bisect
import os
import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log import loader, producer_snapshot, retention
from barnabas.log.append import (
    AppendInfo,
    AppendOrigin,
    PreparedBatch,
    assign_offsets,
    check_producers,
    prepare_follower_batches,
    prepare_leader_batches,
)
from barnabas.log.config import LogConfig
from barnabas.log.errors import WouldBlock, storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.loader import LoadedLog
from barnabas.log.partition_metadata import directory_name, ensure_topic_id
from barnabas.log.recovery import RecoveryReport
from barnabas.log.replaceable_log import ReplaceableLog
from barnabas.log.segment import AppendedBatch, RollLimits, Segment, remove_marked
from barnabas.log.segment_cache import SegmentCache
from barnabas.log.segment_factory import SegmentFactory
from barnabas.log.segment_file import sync_directory, sync_path
from barnabas.records.batch import Buffer

PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms."""

SYNC_RECOVERED_BYTES = 16 * 1024 * 1024
"""A log of which recovery checked this much is synced before it is used; smaller ones are synced together, later."""


class PartitionLog(ReplaceableLog):
    """Owner of a partition's segments, producer state, leader epochs and offsets.

    `log_start_offset` <= recovery point, high watermark (kept by the replica, not here) <= `log_end_offset`.
    """

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        factory: SegmentFactory,
        clock: Clock,
        epochs: LeaderEpochCache,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(directory, factory, epochs, loaded)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.recovery_report: RecoveryReport = loaded.report
        self.recovery_point = loaded.recovery_point
        self._clock = clock
        self._snapshot_offset = loaded.report.snapshot_offset
        self._limits = _roll_limits(factory.config)
        self._directory_is_dirty = True
        self._last_flush_ms = clock.now_ms()
        self.flush_times = FlushTimes()
        """Where syncs are counted; a log directory puts those of its node here."""
        self._flush_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        log_directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        clock: Clock,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        was_compacted: bool = False,
        cache: SegmentCache | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        jitter: random.Random | None = None,
    ) -> PartitionLog:
        """Open `<log_directory>/<topic>-<partition>`, created when absent and recovered when it has to be.

        `recovery_point`, `log_start_offset` and `was_compacted` come from the log directory's checkpoints. May read
        the whole log: for a thread. Raises LogStoreError when the directory belongs to another topic id,
        KafkaError(KAFKA_STORAGE_ERROR) when the disk fails.
        """
        directory = os.path.join(log_directory, directory_name(topic, partition))
        with storage_errors(directory):
            if not os.path.isdir(directory):
                os.makedirs(directory, exist_ok=True)
            ensure_topic_id(directory, topic_id)
            factory = SegmentFactory(
                directory,
                config,
                clock,
                SegmentCache() if cache is None else cache,
                jitter,
            )
            epochs = LeaderEpochCache(directory)
            loaded = loader.load(
                directory,
                factory,
                epochs,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean_shutdown=clean_shutdown,
                was_compacted=was_compacted,
            )
            loaded.producer_state.expire(clock.now_ms(), producer_id_expiration_ms)
        opened = cls(directory, topic, partition, topic_id, factory, clock, epochs, loaded)
        if loaded.report.bytes_checked >= SYNC_RECOVERED_BYTES:
            # Another crash does not check it again. If it cannot be synced, the log is not opened.
            opened.flush()
        return opened

    # -- what the log holds -------------------------------------------------------------------------------------

    @property
    def unflushed_records(self) -> int:
        """Offsets past the recovery point, against flush.messages."""
        return self._end[0] - self.recovery_point

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a `flush`."""
        waiting = self.unflushed_records
        config = self._factory.config
        return waiting >= config.flush_messages or (
            waiting > 0 and now_ms - self._last_flush_ms >= config.flush_ms
        )

    def update_config(self, config: LogConfig) -> None:
        """Obey other settings from now on; the active segment's index limits change at the next roll."""
        with self._lock:
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
        with self._appending(may_block):
            if leader_epoch < self.epochs.latest_epoch:
                raise KafkaError(
                    ErrorCode.fenced_leader_epoch,
                    f"leader epoch {leader_epoch} is older than {self.epochs.latest_epoch}",
                )
            repeated = check_producers(self.producer_state, prepared, origin)
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
            if not may_block and (
                leader_epoch > self.epochs.latest_epoch or self._should_roll(batches, length, now_ms)
            ):
                raise WouldBlock
            with storage_errors(self.directory):
                self.epochs.assign(leader_epoch, first_offset)
                self._write(parts, batches, length, now_ms)
                self._replay(prepared, batches)
            return AppendInfo(
                first_offset, batches[-1].last_offset, append_time, self._log_start_offset, False
            )

    def append_as_follower(self, records: Buffer, *, may_block: bool = True) -> AppendInfo | None:
        """Write the leader's batches as they are; a batch cut at the end is left out, None when none is whole.

        Raises CORRUPT_MESSAGE for a bad batch, OFFSET_OUT_OF_RANGE for offsets that do not continue this log,
        KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was. WouldBlock as `append_as_leader`.
        """
        prepared, batches, length = prepare_follower_batches(records)
        if not batches:
            return None
        now_ms = self._clock.now_ms()
        with self._appending(may_block):
            expected = self._end[0]
            for batch in batches:
                if batch.first_offset < expected:
                    raise KafkaError(
                        ErrorCode.offset_out_of_range,
                        f"offset {batch.first_offset} does not continue a log that ends at {expected}",
                    )
                expected = batch.last_offset + 1
            newest = max(item.header.partition_leader_epoch for item in prepared)
            if not may_block and (
                newest > self.epochs.latest_epoch or self._should_roll(batches, length, now_ms)
            ):
                raise WouldBlock
            with storage_errors(self.directory):
                for item in prepared:
                    self.epochs.assign(item.header.partition_leader_epoch, item.header.base_offset)
                self._write([memoryview(records)[:length]], batches, length, now_ms)
                self._replay(prepared, batches)
            return AppendInfo(
                batches[0].first_offset, batches[-1].last_offset, -1, self._log_start_offset, False
            )

    @contextmanager
    def _appending(self, may_block: bool) -> Iterator[None]:
        if not self._lock.acquire(blocking=may_block):
            raise WouldBlock
        try:
            yield
        finally:
            self._lock.release()

    def _should_roll(self, batches: list[AppendedBatch], length: int, now_ms: int) -> bool:
        newest = max(batch.max_timestamp for batch in batches)
        return self._end[1].should_roll(length, batches[-1].last_offset, newest, now_ms, self._limits)

    def _write(self, parts: Sequence[Buffer], batches: list[AppendedBatch], length: int, now_ms: int) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.directory}: the log is closed")
        segment = self._end[1]
        last_offset = batches[-1].last_offset
        if self._should_roll(batches, length, now_ms):
            segment = self._roll(batches[0].first_offset)
        segment.append(parts, batches, length)
        self._end = (last_offset + 1, segment, segment.size)

    def _replay(self, prepared: list[PreparedBatch], batches: list[AppendedBatch]) -> None:
        state = self.producer_state
        for item, batch in zip(prepared, batches, strict=True):
            if item.marker is not None:
                completed = state.replay_marker(item.header, item.marker, batch.first_offset)
                loader.record_completion(self._end[1], completed)
            elif not item.header.is_control:
                state.replay(item.header, batch.first_offset, batch.max_timestamp)
            else:
                state.end_offset = batch.last_offset + 1

    def roll(self) -> None:
        """Begin a new segment now, unless the active one is empty."""
        with self._lock, storage_errors(self.directory):
            if self._end[1].size:
                self._roll(self._end[0])

    def _roll(self, base_offset: int) -> Segment:
        """A new active segment from `base_offset` on, with a producer snapshot at its start."""
        old = self._end[1]
        base_offset = max(base_offset, self._end[0])
        if old.size:
            old.finish()
        new = self._factory.create(base_offset)
        self._take_snapshot(base_offset, sync=False)
        self._directory_is_dirty = True
        # Nothing can fail from here on: up to now the old segment is the active one.
        if old.size:
            self._segments = (*self._segments, new)
            self._end = (self._end[0], new, 0)
            old.unpin()
        else:
            # Only when the first offset is too far from an empty segment's base.
            self._segments = (*self._segments[:-1], new)
            self._end = (self._end[0], new, 0)
            remove_marked(old.mark_deleted())
        return new

    def _take_snapshot(self, offset: int, *, sync: bool) -> None:
        if offset > self._snapshot_offset:
            entries = list(self.producer_state.producers.values())
            producer_snapshot.write_snapshot(self.directory, offset, entries, sync=sync)
            self._snapshot_offset = offset

    # -- leader epochs and transactions -------------------------------------------------------------------------

    def assign_epoch_start(self, leader_epoch: int) -> None:
        """A new leader epoch begins at the log's end."""
        with self._lock, storage_errors(self.directory):
            self.epochs.assign(leader_epoch, self._end[0])

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where read_committed consumers stop: the first offset that is not decided, at most the high watermark."""
        with self._lock:
            self.producer_state.on_high_watermark(high_watermark)
            unstable = self.producer_state.first_unstable_offset()
            stable = high_watermark if unstable is None else min(unstable, high_watermark)
            return max(stable, self._log_start_offset)

    def expire_producers(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; returns how many."""
        with self._lock:
            return self.producer_state.expire(self._clock.now_ms(), expiration_ms)

    # -- durability and retention -------------------------------------------------------------------------------

    def flush(self) -> int:
        """Make everything up to the present end durable; returns the new recovery point. For a thread.

        Raises KAFKA_STORAGE_ERROR when the disk refuses: what was not synced may be lost, the log directory is bad.
        """
        with self._flush_lock, storage_errors(self.directory), self.flush_times.measure():
            with self._lock:
                end_offset, active, _ = self._end
                pending = self._unflushed_segments()
                for segment in pending:
                    segment.flush_indexes()
                directory_is_dirty, self._directory_is_dirty = self._directory_is_dirty, False
                epochs_are_dirty, self.epochs.is_dirty = self.epochs.is_dirty, False
            for segment in pending:
                if segment is active:
                    # Its indexes are built anew after a crash, so only the data needs the disk.
                    segment.open().file.sync()
                else:
                    segment.sync()
            if epochs_are_dirty:
                sync_path(self.epochs.path)
            if directory_is_dirty:
                sync_directory(self.directory)
            with self._lock:
                self.recovery_point = max(self.recovery_point, min(end_offset, self._end[0]))
                self._last_flush_ms = self._clock.now_ms()
                return self.recovery_point

    def _unflushed_segments(self) -> list[Segment]:
        """The segments that hold offsets from the recovery point on."""
        segments = self._segments
        first = len(segments) - 1
        while first > 0 and segments[first].base_offset > self.recovery_point:
            first -= 1
        return [segment for segment in segments[first:] if segment.size]

    def delete_old_segments(self, high_watermark: int) -> int:
        """Apply retention.ms, retention.bytes and the log start offset; returns how many segments went. For a
        thread.

        A segment with offsets at or past `high_watermark` stays. An active segment all of whose records are expired
        is rolled first. The files are renamed under the lock, so that a crash cannot bring them back half, and
        removed at once: readers keep their descriptors.
        """
        with storage_errors(self.directory):
            with self._lock:
                count = retention.deletable_count(
                    self._segments,
                    self._factory.config,
                    high_watermark=high_watermark,
                    log_start_offset=self._log_start_offset,
                    log_end_offset=self._end[0],
                    now_ms=self._clock.now_ms(),
                )
                if count == len(self._segments):
                    self._roll(self._end[0])
                marked = self._drop(self._segments[:count], self._segments[count:])
                self._start_at(max(self._log_start_offset, self._segments[0].base_offset))
            remove_marked(marked)
            return count

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records before `offset` are gone (DeleteRecords, or the leader's start); returns whether that is news.

        The files follow with the next `delete_old_segments`. Raises OFFSET_OUT_OF_RANGE past the log's end; that
        it is not past the high watermark is the caller's to check.
        """
        with self._lock, storage_errors(self.directory):
            if offset > self._end[0]:
                raise KafkaError(
                    ErrorCode.offset_out_of_range, f"offset {offset} is past the log's end, {self._end[0]}"
                )
            if offset <= self._log_start_offset:
                return False
            self._start_at(offset)
            return True

    def _start_at(self, offset: int) -> None:
        if offset != self._log_start_offset:
            self._log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def _drop(self, gone: tuple[Segment, ...], kept: tuple[Segment, ...]) -> list[str]:
        """Take segments out of the log; returns the files to remove."""
        self._segments = kept
        self._directory_is_dirty = self._directory_is_dirty or bool(gone)
        return [path for segment in gone for path in segment.mark_deleted()]

    # -- truncation and closing ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drop every record from `offset` on, as a follower does; returns the new log end offset.

        A batch that holds `offset` in its middle goes as a whole, so the end may come out lower. The recovery point
        comes down as well: the caller writes the directory's checkpoints before it appends again, or a crash might
        leave an old one that vouches for new records.
        """
        with self._lock, storage_errors(self.directory):
            if offset >= self._end[0]:
                return self._end[0]
            if offset < self._segments[0].base_offset:
                return self.truncate_fully_and_start_at(offset)
            segments = self._segments
            count = bisect.bisect_right(segments, offset, key=lambda each: each.base_offset)
            remove_marked(self._drop(segments[count:], segments[:count]))
            active = segments[count - 1]
            end_offset = active.truncate_to(offset)
            active.pin()
            self._restart(active, end_offset)
            state, snapshot_offset = loader.rebuild_producer_state(
                self.directory, list(self._segments), end_offset, end_offset
            )
            self.producer_state, self._snapshot_offset = state, snapshot_offset
            return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> int:
        """Drop everything; the log is empty and goes on at `offset`, which is returned."""
        with self._lock, storage_errors(self.directory):
            marked = self._drop(self._segments, ())
            snapshots = producer_snapshot.snapshot_offsets(os.listdir(self.directory))
            producer_snapshot.remove_snapshots(self.directory, snapshots)
            remove_marked(marked)
            active = self._factory.create(offset)
            self._segments = (active,)
            self._log_start_offset = offset
            self._restart(active, offset)
            self.epochs.clear()
            self.producer_state.clear(offset)
            self._snapshot_offset = -1
            return offset

    def _restart(self, active: Segment, end_offset: int) -> None:
        """The log ends at `end_offset` in `active` from now on."""
        self._end = (end_offset, active, active.size)
        self._truncations += 1
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self._log_start_offset = min(self._log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._directory_is_dirty = True

    def close(self) -> None:
        """Make everything durable, with a producer snapshot at the end, and let go of the files. For a thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            with storage_errors(self.directory):
                self._end[1].finish()
                if self._end[0] > self.recovery_point or self.producer_state.producers:
                    self._take_snapshot(self._end[0], sync=True)
        if self.unflushed_records:
            self.flush()
        self.release()

    def release(self) -> None:
        """Let go of the files without writing anything: what a crash would do, and what precedes deletion."""
        with self._lock:
            self._is_closed = True
            for segment in self._segments:
                self._factory.cache.forget(segment)
                segment.release()


def _roll_limits(config: LogConfig) -> RollLimits:
    return RollLimits(config.segment_bytes, config.roll_ms)
