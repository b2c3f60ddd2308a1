"""The log of one partition: what others see of it, its opening and its closing.

Any method may be called from any thread. The work is done by the parts that a log is made of, which share its state:
`LogReader` reads and takes no lock, `LogAppender` and `SegmentRoller` let it grow, `LogFlusher` knows what is durable,
`LogTrimmer` and `LogTruncator` take from its two ends, `SegmentReplacement` swaps compacted segments in.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable

from barnabas.kernel.clock import Clock
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.appender import LogAppender
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.checkpoints.partition_metadata import directory_name, ensure_topic_id
from barnabas.log.cleaning.replacement import SegmentReplacement
from barnabas.log.config import LogConfig
from barnabas.log.errors import storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.flusher import LogFlusher
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.opening import loader
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.opening.recovery import RecoveryReport
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.log.producers.verification_guards import VerificationGuards
from barnabas.log.reader import LogReader
from barnabas.log.roller import SegmentRoller
from barnabas.log.segments.segment import Segment
from barnabas.log.segments.segment_cache import SegmentCache
from barnabas.log.segments.segment_factory import SegmentFactory
from barnabas.log.segments.timestamp_lookup import TimestampedOffset
from barnabas.log.segments.transaction_index import AbortedTransaction
from barnabas.log.small_files import SyncError
from barnabas.log.trimmer import LogTrimmer
from barnabas.log.truncator import LogTruncator
from barnabas.log.trust import Trust

SYNC_RECOVERED_BYTES = 16 * 1024 * 1024
"""A log of which recovery checked this much is synced before it is used; smaller ones are synced together, later."""


class PartitionLog:
    """Owner of the parts of one partition's log, and of whether it was closed properly.

    `log_start_offset` <= recovery point, high watermark (kept by the replica, not here) <= `log_end_offset`.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        clock: Clock,
        state: LogState,
        loaded: LoadedLog,
        first_dirty_offset: int,
        flush_times: FlushTimes,
        is_placed: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = state.directory
        self.epochs = state.epochs
        self.recovery_report: RecoveryReport = loaded.report
        self._is_closed_properly = False
        self._state = state
        self._trust = trust = Trust(state.directory)
        self._locks = locks = Locks(state)
        self._producers = producers = LogProducers(state, locks, clock, loaded)
        self._flusher = flusher = LogFlusher(state, locks, trust, loaded, flush_times, is_placed)
        self._roller = roller = SegmentRoller(state, locks, trust, producers, flusher)
        self._trimmer = LogTrimmer(state, locks, trust, roller, clock)
        self.replacement = SegmentReplacement(state, locks, trust, producers, first_dirty_offset)
        """How compaction puts its segments in."""
        self.truncator = LogTruncator(state, locks, trust, producers, roller, flusher, self.replacement)
        self._reader = reader = LogReader(state)
        appender = LogAppender(state, locks, trust, producers, roller, clock)
        # Bound once, not forwarded: what every request asks for pays for no second call.
        self.append_as_leader = appender.append_as_leader
        self.append_checked = appender.append_checked
        self.check = appender.check
        self.needs_walk = appender.needs_walk
        self.append_as_follower = appender.append_as_follower
        self.locate = reader.locate
        self.read = reader.read
        self.last_stable_offset = producers.last_stable_offset

    @classmethod
    def open(
        cls,
        log_directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        environment: Environment,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        first_dirty_offset: int = -1,
        is_identified: bool = False,
        name: str = "",
        cache: SegmentCache | None = None,
        flush_times: FlushTimes | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> PartitionLog:
        """Open `<log_directory>/<topic>-<partition>`, created when absent and recovered when it has to be.

        `recovery_point`, `log_start_offset` and `first_dirty_offset` come from the log directory's checkpoints;
        `is_identified` says that its directory was seen to be there and of this topic id; `name` is that of the
        directory where it is not the partition's, as of a future replica. May read the whole log: for a thread. Raises
        LogStoreError when the directory belongs to another topic id, KafkaError(KAFKA_STORAGE_ERROR) when the disk
        fails.
        """
        directory = os.path.join(log_directory, name or directory_name(topic, partition))
        with storage_errors(directory):
            if not is_identified:
                environment.files.makedirs(directory)
                ensure_topic_id(environment.files, directory, topic_id)
            segments = SegmentCache() if cache is None else cache
            factory = SegmentFactory(environment, directory, config, segments)
            epochs = LeaderEpochCache(environment.files, directory)
            loaded = loader.load(
                directory,
                factory,
                epochs,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean_shutdown=clean_shutdown,
                was_compacted=first_dirty_offset >= 0,
            )
            loaded.producer_state.expire(environment.clock.now_ms(), producer_id_expiration_ms)
        state = LogState(directory, factory, epochs, loaded)
        times = flush_times or FlushTimes()
        is_placed = is_identified and not loaded.report.segments_checked
        opened = cls(
            topic, partition, topic_id, environment.clock, state, loaded, first_dirty_offset, times, is_placed
        )
        if loaded.report.bytes_checked >= SYNC_RECOVERED_BYTES:
            # Another crash does not check it again. If it cannot be synced, the log is not opened.
            opened.flush()
        return opened

    # -- what it is now -----------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._state.factory.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._state.end[0]

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record, or -1; not an epoch that has written nothing."""
        return self.epochs.epoch_for_offset(self._state.end[0] - 1)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._state.segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, the active one last: for compaction, which reads the finished ones."""
        return self._state.segments

    @property
    def generation(self) -> int:
        """How often it was truncated, but for a truncation that is under way: see `LogSlice`."""
        return self._state.end[3]

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._state.segments)

    @property
    def producer_state(self) -> ProducerState:
        return self._producers.state

    def knows_producer(self, producer_id: int) -> bool:
        """Whether the log has the sequences of this producer. Takes no lock."""
        return producer_id in self._producers.state.producers

    @property
    def guards(self) -> VerificationGuards:
        """Under which transactions may begin here; a log that takes over from another is given the other's."""
        return self._producers.guards

    @guards.setter
    def guards(self, guards: VerificationGuards) -> None:
        self._producers.guards = guards

    @property
    def refused(self) -> RefusedSequences:
        """What clients are to send again; the replica keeps it while no log is open, and gives it to the next."""
        return self._producers.refused

    @refused.setter
    def refused(self, refused: RefusedSequences) -> None:
        self._producers.refused = refused

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        return self._flusher.recovery_point

    @property
    def recovery_checkpoint(self) -> int:
        """The recovery point as the directory's checkpoint has it: see `LogFlusher`."""
        return self._flusher.recovery_checkpoint

    @property
    def unflushed_records(self) -> int:
        """Offsets past the recovery point, against flush.messages."""
        return self._state.end[0] - self._flusher.recovery_point

    @property
    def is_finished_segment_unflushed(self) -> bool:
        """Whether `flush_finished` has something to do: a segment was rolled since. Every append asks."""
        return self._state.end[1].base_offset > self._flusher.recovery_point

    @property
    def has_doubtful_indexes(self) -> bool:
        """Whether a finished segment's indexes are to be built anew: a clean stop would have to."""
        return any(segment.are_indexes_doubtful for segment in self._state.segments)

    @property
    def is_closed(self) -> bool:
        return self._trust.is_closed

    @property
    def is_trusted(self) -> bool:
        """Whether what is on disk is what is in memory; if not, only opening the log anew helps."""
        return self._trust.is_trusted

    def call_when_distrusted(self, on_distrusted: Callable[[KafkaError], object]) -> None:
        """Have `on_distrusted` called once if the log comes not to be trusted any more, in whatever thread that is."""
        self._trust.on_distrusted = on_distrusted

    @property
    def first_dirty_offset(self) -> int:
        """Up to here the log has been compacted (the cleaner's checkpoint); -1 when it never was."""
        return self.replacement.first_dirty_offset

    @first_dirty_offset.setter
    def first_dirty_offset(self, offset: int) -> None:
        self.replacement.first_dirty_offset = offset

    # -- what its parts do: see there -----------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp` (ms); None without one. For a thread."""
        return self._reader.offset_for_timestamp(timestamp)

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the greatest timestamp (KIP-734); None without timestamps. For a thread."""
        return self._reader.max_timestamp()

    def earliest(self) -> TimestampedOffset:
        """The log start offset, without a timestamp, and the epoch that wrote it (-1 if unknown)."""
        return self._reader.earliest()

    def latest(self) -> TimestampedOffset:
        """The log end offset, without a timestamp, and the newest epoch (-1 if unknown)."""
        return self._reader.latest()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when the epoch is unknown."""
        return self._reader.end_offset_for_epoch(leader_epoch)

    def aborted_transactions(
        self, offset: int, upper_bound_offset: int, *, nowait: bool = False
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in [offset, upper_bound_offset), for a read_committed fetch."""
        return self._reader.aborted_transactions(offset, upper_bound_offset, nowait=nowait)

    def assign_epoch_start(self, leader_epoch: int) -> None:
        """A new leader epoch begins at the log's end; never waits."""
        self._locks.assign_epoch_start(leader_epoch)

    def drop_unwritten_epochs(self) -> None:
        """Forget leader epochs that began at the log's end, for others will write there; never waits."""
        self.epochs.truncate_from_end(self._state.end[0])

    def update_config(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self._roller.update_config(config)

    def roll(self) -> None:
        """Begin a new segment now, unless the active one is empty. For a thread."""
        self._roller.roll()

    def check_place(self) -> None:
        """Raises OSError where the log is not what its directory's name leads to. For a thread."""
        self._roller.check_place()

    def skip_to(self, offset: int) -> None:
        """The next record gets `offset`, or a later one. For a thread."""
        self._roller.skip_to(offset)

    def take_over(self, former: PartitionLog) -> None:
        """Know of producers, epochs and compaction what `former` knows, which has the same records. For a thread."""
        with self._locks.hold_log_end():
            self._producers.take_over(former.producer_state)
            self.epochs.take_over(former.epochs.entries)
            self.first_dirty_offset = former.first_dirty_offset

    def rename(self, directory: str) -> None:
        """Have its directory the name `directory`, in the same log directory: who reads it, or makes it durable, goes
        on there. Nothing is appended any more. For a thread. Raises KAFKA_STORAGE_ERROR, with nothing changed.
        """
        state = self._state
        with (
            self._locks.upkeep,
            self._locks.hold_log_end(),
            storage_errors(state.directory),
            contextlib.ExitStack() as held,
        ):
            for segment in state.segments:
                held.enter_context(segment.hold_names())
            state.files.rename(state.directory, directory)
            for segment in state.segments:
                segment.follow(directory)
            state.epochs.follow(directory)
            self.directory = state.directory = state.factory.directory = directory

    def flush(self) -> int:
        """Make everything up to the present end durable; returns the new recovery point. For a thread."""
        return self._flusher.flush()

    def flush_finished(self) -> int:
        """Make every finished segment durable; returns the new recovery point. For a thread, after each roll."""
        return self._flusher.flush_finished()

    def delete_old_segments(self, high_watermark: int) -> int:
        """Apply retention and the log start offset; returns how many segments went. For a thread."""
        return self._trimmer.delete_old_segments(high_watermark)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records before `offset` are gone; returns whether that is news."""
        return self._trimmer.maybe_increment_log_start_offset(offset)

    def truncate_to(self, offset: int) -> int:
        """Drop every record from `offset` on; returns the new log end offset. For a thread."""
        return self.truncator.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> int:
        """Drop everything; the log is empty and goes on at `offset`, which is returned. For a thread."""
        return self.truncator.truncate_fully_and_start_at(offset)

    def expire_producers(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; returns how many. For a thread."""
        return self._producers.expire(expiration_ms)

    # -- closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable, with a producer snapshot at the end, and let go of the files. For a thread.

        Raises KAFKA_STORAGE_ERROR, and again when it is called again: the log has to be checked when it is opened
        next.
        """
        with self._locks.upkeep:
            if self._trust.is_closed:
                if not self._is_closed_properly:
                    self._trust.check_trusted()
                    raise KafkaError(
                        ErrorCode.kafka_storage_error, f"{self.directory}: was not closed properly"
                    )
                return
            with self._locks.log_end:
                self._trust.is_closed = True
            try:
                with storage_errors(self.directory):
                    self._trust.check_trusted()
                    if self._roller.is_unclear:
                        self._roller.clear_up()
                    self._roller.check_place()
                    self._finish()
                self._is_closed_properly = True
            finally:
                self.release()

    def _finish(self) -> None:
        end_offset, active, _, generation = self._state.end
        active.finish()
        if end_offset > self.recovery_point or self.producer_state.producers:
            try:
                self._producers.take_snapshot(end_offset, sync=True)
            except SyncError as error:
                self._trust.distrust(error)
                raise
        # Epochs that wrote nothing need no disk: there are as many after an election as there are partitions.
        if self.unflushed_records or not all(segment.is_flushed for segment in self._state.segments):
            # The active segment as a finished one: after a clean stop nobody builds its indexes anew.
            self._flusher.flush_to(end_offset, self._state.segments, None, generation)

    def discard(self) -> None:
        """As `release`, once no upkeep works on the files any more: whoever has discarded a log may give their names
        to another. For a thread.
        """
        with self._locks.upkeep:
            self.release()

    def release(self) -> None:
        """Let go of the files without writing anything, as a crash would; never waits for upkeep."""
        with self._locks.log_end:
            self._trust.is_closed = True
            for segment in self._state.segments:
                self._state.factory.cache.forget(segment)
                segment.release()
