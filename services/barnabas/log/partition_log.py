"""The log of one partition: segments in a directory, and the one place that changes them.

Any method may be called from any thread. Here are opening, retention, truncation and closing; reading, which takes
no lock, is `ReadableLog`'s, the locks and compaction's swap of segments are `ReplaceableLog`'s, what is durable is
`FlushableLog`'s, appending and rolling `AppendableLog`'s.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import random
import uuid
from collections.abc import Iterator

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log import retention
from barnabas.log.appendable_log import AppendableLog
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.checkpoints.partition_metadata import directory_name, ensure_topic_id
from barnabas.log.config import LogConfig
from barnabas.log.errors import storage_errors
from barnabas.log.opening import loader
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.opening.recovery import RecoveryReport
from barnabas.log.producers import producer_snapshot
from barnabas.log.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from barnabas.log.segments.segment import Segment, remove_marked
from barnabas.log.segments.segment_cache import SegmentCache
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.segments.segment_file import SyncError

SYNC_RECOVERED_BYTES = 16 * 1024 * 1024
"""A log of which recovery checked this much is synced before it is used; smaller ones are synced together, later."""


class PartitionLog(AppendableLog):
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
        super().__init__(directory, factory, clock, epochs, loaded)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.recovery_report: RecoveryReport = loaded.report
        self._is_closed_properly = False

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
        is_identified: bool = False,
        cache: SegmentCache | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        jitter: random.Random | None = None,
    ) -> PartitionLog:
        """Open `<log_directory>/<topic>-<partition>`, created when absent and recovered when it has to be.

        `recovery_point`, `log_start_offset` and `was_compacted` come from the log directory's checkpoints;
        `is_identified` says that its directory was just seen to be there and of this topic id. May read the whole log:
        for a thread. Raises LogStoreError when the directory belongs to another topic id,
        KafkaError(KAFKA_STORAGE_ERROR) when the disk fails.
        """
        directory = os.path.join(log_directory, directory_name(topic, partition))
        with storage_errors(directory):
            if not is_identified:
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

    # -- retention ------------------------------------------------------------------------------------------

    def delete_old_segments(self, high_watermark: int) -> int:
        """Apply retention.ms, retention.bytes and the log start offset; returns how many segments went. For a
        thread.

        A segment with offsets at or past `high_watermark` stays. An active segment all of whose records are expired
        is rolled first. The files are renamed, oldest first, so that a crash cannot bring them back half, and
        removed at once: readers keep their descriptors. Raises KAFKA_STORAGE_ERROR; what could not be renamed is
        then tried again the next time.
        """
        with self._upkeep, storage_errors(self.directory):
            self._check_writable()
            segments = self._segments
            count = retention.deletable_count(
                segments,
                self._factory.config,
                high_watermark=high_watermark,
                log_start_offset=self._log_start_offset,
                log_end_offset=self._end[0],
                now_ms=self._clock.now_ms(),
            )
            if count == len(segments) and not self._roll_if_at(high_watermark):
                count -= 1
            marked = self._drop_oldest(count)
        remove_marked(marked)
        return count

    def _roll_if_at(self, offset: int) -> bool:
        """Roll, so that all there was may go, unless something was appended past `offset` meanwhile."""
        with self._turn():
            is_there = self._end[0] <= offset
            if is_there:
                self._roll(self._end[0])
            return is_there

    def _drop_oldest(self, count: int) -> list[str]:
        """Take the first `count` segments out of the log; returns the files to remove."""
        gone = self._segments[:count]
        if not gone:
            return []
        self._check_writable()  # or the names on disk may be another log's by now
        with self._publishing:
            self._segments = self._segments[count:]
            self._start_at(max(self._log_start_offset, self._segments[0].base_offset))
        self._directory_is_dirty = True
        marked: list[str] = []
        for number, segment in enumerate(gone):
            try:
                marked += segment.mark_deleted()
            except OSError:
                # It stands before the log's start, where nobody reads and the next look at retention finds it.
                with self._publishing:
                    self._segments = (*gone[number:], *self._segments)
                remove_marked(marked)
                raise
        return marked

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records before `offset` are gone (DeleteRecords, or the leader's start); returns whether that is news.

        The files follow with the next `delete_old_segments`. Raises OFFSET_OUT_OF_RANGE past the log's end; that
        it is not past the high watermark is the caller's to check.
        """
        with self._publishing:
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

    # -- truncation and closing ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drop every record from `offset` on, as a follower does; returns the new log end offset. For a thread.

        A batch that holds `offset` in its middle goes as a whole, so the end may come out lower. Epochs that begin
        at the end go in any case. The recovery point comes down as well: the caller writes the directory's
        checkpoints before it appends again, or a crash might leave an old one that vouches for new records.
        Raises KAFKA_STORAGE_ERROR; a truncation that stopped half way has to be finished by opening the log anew.
        """
        with self._upkeep, self._turn(), storage_errors(self.directory):
            self._check_writable()
            if offset >= self._end[0]:
                self.epochs.truncate_from_end(self._end[0])
                return self._end[0]
            if offset < self._segments[0].base_offset:
                return self.truncate_fully_and_start_at(offset)
            with self._trusted_if_done():
                segments = self._segments
                count = bisect.bisect_right(segments, offset, key=lambda each: each.base_offset)
                self._drop_newest(count)
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
        """Drop everything; the log is empty and goes on at `offset`, which is returned. Raises as `truncate_to`."""
        with self._upkeep, self._turn(), storage_errors(self.directory):
            self._check_writable()
            with self._trusted_if_done():
                self._drop_newest(0)
                snapshots = producer_snapshot.snapshot_offsets(os.listdir(self.directory))
                producer_snapshot.remove_snapshots(self.directory, snapshots)
                active = self._factory.create(offset)
                with self._publishing:
                    self._segments = (active,)
                    self._log_start_offset = offset
                self._restart(active, offset)
                self.epochs.clear()
                self.producer_state.clear(offset)
                self._snapshot_offset = -1
                return offset

    @contextlib.contextmanager
    def _trusted_if_done(self) -> Iterator[None]:
        if self._is_unclear:
            self._clear_up()
        # Before anything changes: a read that began before it may find other bytes.
        self._truncations.count += 1
        try:
            yield
        except OSError as error:
            self._distrust(error)
            # Nothing is written any more, so that what is there may be read as it is.
            self._end = (*self._end[:3], self._truncations.count)
            raise

    def _drop_newest(self, count: int) -> None:
        """Keep the first `count` segments; the newest go first, so that a crash leaves no hole."""
        self._directory_is_dirty = True
        for segment in reversed(self._segments[count:]):
            remove_marked(segment.mark_deleted())
        if count:
            with self._publishing:
                self._segments = self._segments[:count]

    def _restart(self, active: Segment, end_offset: int) -> None:
        """The log ends at `end_offset` in `active` from now on."""
        with self._publishing:
            self._end = (end_offset, active, active.size, self._truncations.count)
            self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
            self._log_start_offset = min(self._log_start_offset, end_offset)
            self.recovery_point = min(self.recovery_point, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._directory_is_dirty = True

    def close(self) -> None:
        """Make everything durable, with a producer snapshot at the end, and let go of the files. For a thread.

        Raises KAFKA_STORAGE_ERROR, and again when it is called again: the log has to be checked when it is opened
        next.
        """
        with self._upkeep:
            if self._is_closed:
                if not self._is_closed_properly:
                    self._check_trusted()
                    raise KafkaError(
                        ErrorCode.kafka_storage_error, f"{self.directory}: was not closed properly"
                    )
                return
            with self._lock:
                self._is_closed = True
            try:
                with storage_errors(self.directory):
                    self._check_trusted()
                    if self._is_unclear:
                        self._clear_up()
                    self._finish()
                self._is_closed_properly = True
            finally:
                self.release()

    def _finish(self) -> None:
        active = self._end[1]
        active.finish()
        if self._end[0] > self.recovery_point or self.producer_state.producers:
            try:
                self._take_snapshot(self._end[0], sync=True)
            except SyncError as error:
                self._distrust(error)
                raise
        # Epochs that wrote nothing need no disk: there are as many after an election as there are partitions.
        if self.unflushed_records or not active.is_flushed:
            end_offset, active, _, generation = self._end
            self._flush_to(end_offset, self._segments, active, generation)

    def discard(self) -> None:
        """As `release`, once no upkeep works on the files any more: whoever has discarded a log may give their names
        to another. For a thread.
        """
        with self._upkeep:
            self.release()

    def release(self) -> None:
        """Let go of the files without writing anything, as a crash would; never waits for upkeep."""
        with self._lock:
            self._is_closed = True
            for segment in self._segments:
                self._factory.cache.forget(segment)
                segment.release()
