"""One log directory (one entry of `log.dirs`): its identity, its lock, its checkpoints, its partitions' logs."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from functools import partial

from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints import clean_shutdown
from barnabas.log.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    PartitionKey,
    read_offsets,
)
from barnabas.log.checkpoints.clean_shutdown import UNKNOWN_PROCESS, CleanShutdown
from barnabas.log.checkpoints.cleaner_checkpoint import CleanerCheckpoint
from barnabas.log.checkpoints.meta_properties import (
    MetaProperties,
    check_meta_properties,
    write_meta_properties,
)
from barnabas.log.checkpoints.offset_files import OffsetFiles
from barnabas.log.checkpoints.partition_metadata import directory_name, parse_directory_name, read_topic_id
from barnabas.log.closing import check_all_closed, close_logs
from barnabas.log.config import LogConfig
from barnabas.log.deleted_directories import DeletedDirectories
from barnabas.log.directory_lock import take_lock
from barnabas.log.errors import LogStoreError, storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.log_progress import has_log, may_have_log
from barnabas.log.moving.future_directory import MoveFacts
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from barnabas.log.segments.segment_cache import OPEN_SEGMENTS_MAX, SegmentCache
from barnabas.log.small_files import exists, sync_directory

logger = get_logger("log.directory")


class LogDirectory:
    """Owner of a log directory: while it is open no other process opens it.

    Opening, deleting, checkpoints and closing touch the disk and belong in a thread; several partitions may be
    opened in several threads at once.
    """

    def __init__(
        self,
        path: str,
        properties: MetaProperties,
        lock_fd: int,
        closed: CleanShutdown | None,
        environment: Environment,
        cache: SegmentCache,
    ) -> None:
        self._files = environment.files
        self.path = path
        self.properties = properties
        self.closed = closed
        """What was said when the directory was closed properly; None if it was not."""
        self.recovery_points = read_offsets(self._files, self._file(RECOVERY_POINT_FILE))
        self.high_watermarks = read_offsets(self._files, self._file(HIGH_WATERMARK_FILE))
        """As they were when the directory was opened; the replicas take them from here."""
        self.log_start_offsets = read_offsets(self._files, self._file(LOG_START_OFFSET_FILE))
        self._offset_files = OffsetFiles(self._files, path)
        self._cleaner = CleanerCheckpoint(self._files, path)
        self.kept_for_missing: set[PartitionKey] = set()
        """Partitions that the checkpoints name with records, on purpose, although they have no log."""
        self.logs: dict[PartitionKey, PartitionLog] = {}
        self._closed_properly: dict[PartitionKey, bool] = {}
        """Of what this process has begun to open; the others are as they were found."""
        self._outdated: set[PartitionKey] = set()
        """Partitions that are gone, or have lost their end, while the checkpoints on disk may say otherwise yet."""
        self.deleted = DeletedDirectories(environment.files, path)
        """What says of partitions that nothing is missing, whatever the checkpoints on disk say."""
        self._seen_at_start: dict[PartitionKey, uuid.UUID] = {}
        """Partitions found by `partitions_on_disk`, and their topics, that were neither opened nor removed since."""
        self.cache = cache
        self.environment = environment
        self.flush_times = FlushTimes()
        self._lock_fd = lock_fd
        self._checkpoint_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str,
        cluster_id: str,
        node_id: int,
        environment: Environment,
        *,
        flush_times: FlushTimes | None = None,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
    ) -> LogDirectory:
        """Open the directory, created when absent. Partition logs are opened one by one with `open_partition`.

        Raises LogStoreError, with nothing changed, when it belongs to another cluster or node, is in use by another
        process, or has a file that cannot be read.
        """
        files = environment.files
        try:
            files.makedirs(path)
            check_meta_properties(files, path, cluster_id, node_id)
            lock_fd = take_lock(files, path)
        except OSError as error:
            raise LogStoreError(f"{path} cannot be used as a log directory: {error}") from error
        try:
            properties = check_meta_properties(files, path, cluster_id, node_id)
            if properties is None:
                properties = MetaProperties(cluster_id, node_id, environment.new_id())
                write_meta_properties(files, path, properties)
            closed = clean_shutdown.read_marker(files, path)
            cache = SegmentCache(open_segments_max)
            opened = cls(path, properties, lock_fd, closed, environment, cache)
            opened.flush_times = flush_times or opened.flush_times
            # Only now, when nothing can be wrong any more: from here on a crash is a crash.
            if closed is not None:
                clean_shutdown.remove_marker(files, path)
            opened.deleted.clear_up(opened._drop_checkpoints)
        except OSError as error:
            files.close(lock_fd)
            raise LogStoreError(f"{path} cannot be used as a log directory: {error}") from error
        except BaseException:
            files.close(lock_fd)
            raise
        return opened

    @property
    def cleaner_offsets(self) -> dict[PartitionKey, int]:
        """Up to where each log is compacted, as it was last written down."""
        return self._cleaner.offsets

    @property
    def was_clean(self) -> bool:
        """Whether the directory had been closed properly, with the logs that were there: see `loader.load`."""
        return self.closed is not None

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def partitions_on_disk(self) -> dict[PartitionKey, uuid.UUID | None]:
        """Every partition directory, with its topic id (None without partition.metadata), but for one that is empty and
        should not be: that is missing. Raises OSError and LogStoreError.
        """
        found: dict[PartitionKey, uuid.UUID | None] = {}
        for name in sorted(self._files.list_directories(self.path)):
            key = parse_directory_name(name)
            if key is not None and not self._is_gone(key, is_start=True):
                found[key] = read_topic_id(self._files, self._file(name))
        for key in {*self.recovery_points, *self.high_watermarks, *self.log_start_offsets} - found.keys():
            if self.promised(key):
                self.kept_for_missing.add(key)  # or a crash came between its deletion and the checkpoints
            else:
                self._drop_checkpoints(key)
        if self.kept_for_missing and self.closed is not None:
            self.closed = UNKNOWN_PROCESS
        self._seen_at_start = {
            key: topic_id for key, topic_id in found.items() if topic_id and key not in self.logs
        }
        return found

    def promised(self, key: PartitionKey) -> int:
        """Up to which offset the checkpoints say that the partition has records; 0 where they do not name it."""
        return max(self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0))

    def _is_gone(self, key: PartitionKey, *, is_start: bool = False) -> bool:
        """Whether it has no directory, or should have a log in it, and has none: so looks the place where its file
        system was. Raises OSError.
        """
        is_there = exists if not self.promised(key) else may_have_log if is_start else has_log
        return not is_there(self._files, self._file(directory_name(*key)))

    def has_vanished(self, key: PartitionKey) -> bool:
        """Whether it is gone, though checkpoints name it or a start found it, and nothing says that it was deleted, nor
        that it was gone before. What comes again then is looked at anew. Raises KAFKA_STORAGE_ERROR.
        """
        is_explained = key in self.logs or key in self.kept_for_missing or self.deleted.speak_of(key)
        if is_explained or not (self.promised(key) or key in self._seen_at_start):
            return False
        with storage_errors(self.path):
            is_gone = self._is_gone(key)
        if is_gone:
            self._seen_at_start.pop(key, None)
        return is_gone

    def open_partition(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> PartitionLog:
        """The partition's log, opened (and recovered) or created; the same object when it is open already.

        Raises as `PartitionLog.open`.
        """
        key = (topic, partition)
        present = self.logs.get(key)
        if present is not None:
            if present.topic_id != topic_id:
                raise LogStoreError(f"{present.directory} is open under topic id {present.topic_id}")
            return present
        self._forget_outdated(key)
        # For the first attempt only: what lies here may be another directory by the next.
        is_identified = key not in self._closed_properly and self._seen_at_start.get(key) == topic_id
        # What this process has opened before, or failed to, was closed properly only if `close_partition` did it.
        is_clean = self._is_closed_properly(key)
        self._closed_properly[key] = False
        try:
            log = PartitionLog.open(
                self.path,
                topic,
                partition,
                topic_id,
                config,
                self.environment,
                recovery_point=self.recovery_points.get(key, 0),
                log_start_offset=self.log_start_offsets.get(key, 0),
                clean_shutdown=is_clean,
                first_dirty_offset=self.cleaner_offsets.get(key, -1),
                is_identified=is_identified,
                cache=self.cache,
                flush_times=self.flush_times,
                producer_id_expiration_ms=producer_id_expiration_ms,
            )
        except BaseException:
            self.cache.forget_log(self._file(directory_name(*key)))
            raise
        known = self.recovery_points.get(key, 0)
        self.take_in(key, log)
        # Much of it was checked: a crash from here on does not do it again. No point past its end may vouch for more.
        if log.recovery_point < known or log.recovery_checkpoint > known:
            try:
                self.write_checkpoints()
            except KafkaError:
                del self.logs[key]
                log.release()
                with self._checkpoint_lock:
                    self._outdated.add(key)
                raise
        return log

    def take_in(self, key: PartitionKey, log: PartitionLog) -> None:
        """The log is that of the partition here, and is open."""
        self._closed_properly[key] = False
        self._seen_at_start.pop(key, None)
        log.truncator.write_lowered = partial(self._write_lowered, key, log)
        log.truncator.write_compacted = self.write_cleaner_checkpoint
        self.logs[key] = log

    def forget_place(self, key: PartitionKey) -> None:
        """Nothing on disk says anything of what takes the partition's place here next. Raises KAFKA_STORAGE_ERROR."""
        self._drop_checkpoints(key)
        self._forget_outdated(key)

    def adopt(self, key: PartitionKey, facts: MoveFacts) -> None:
        """The partition has come to its place here, or is about to: the checkpoints that are written next say of it
        what `facts` say, or what has become of it since.
        """
        self._closed_properly[key] = False
        with self._checkpoint_lock:
            self.recovery_points[key] = facts.recovery_point
            self.high_watermarks[key] = facts.high_watermark
            self.log_start_offsets[key] = facts.log_start_offset
            if facts.first_dirty_offset >= 0:
                self._cleaner.adopt(key, facts.first_dirty_offset)

    def _forget_outdated(self, key: PartitionKey) -> None:
        """What is appended from here on must not inherit a recovery point that says its data is safe, and nothing may
        say that it was deleted.
        """
        with storage_errors(self.path):
            was_here = key in self._seen_at_start or any(key in each for each in self._named())
            if was_here and self._is_gone(key):
                self._seen_at_start.pop(key, None)
                self._drop_checkpoints(key)
        self.kept_for_missing.discard(key)
        if key in self._outdated:
            self.write_checkpoints()
        with storage_errors(self.path):
            self.deleted.silence(key, self.environment.new_id)

    def close_partition(self, topic: str, partition: int) -> None:
        """Close one partition's log, which may be opened again, also when this raises KAFKA_STORAGE_ERROR."""
        key = (topic, partition)
        log = self.logs.get(key)
        if log is not None:
            try:
                log.close()
                self.write_checkpoints()
                self._closed_properly[key] = True
            finally:
                # Also when it could not be closed properly: opened again, it is checked.
                del self.logs[key]
                log.discard()

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove a partition, open or not: renamed first, lest a crash bring it back. Raises KAFKA_STORAGE_ERROR."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        if log is not None:
            log.discard()
        with storage_errors(self.path):
            try:
                self.deleted.add(key, self.environment.new_id())
            except FileNotFoundError:
                self.forget_gone(key)
                return
            try:
                self.deleted.empty(key)
            finally:
                self.forget(key)

    def forget_elsewhere(self, key: PartitionKey) -> None:
        """The partition, whose place is not here, is about to be deleted or set aside: checkpoints that name it miss
        nothing. Where some do, this disk is waited for, however long it takes: it has to say so before the other one
        has lost the partition. One that refuses holds up nothing.
        """
        self.kept_for_missing.discard(key)
        if not any(key in each for each in (*self._named(), self._outdated)):
            return  # without the lock, which whoever writes to a disk that does not answer holds
        self._drop_checkpoints(key)
        if key in self._outdated:
            with contextlib.suppress(OSError):
                self.deleted.note(key, self.environment.new_id())
            self.forget(key)

    def forget_gone(self, key: PartitionKey) -> None:
        """What was to be deleted here went before, and is missed no longer."""
        self.forget_elsewhere(key)
        self.forget(key)

    def let_go(self, key: PartitionKey) -> None:
        """The partition has its place in another log directory: its log and its checkpoints are no longer of here."""
        self.logs.pop(key, None)  # it may be closed already, if the node stops
        self._closed_properly.pop(key, None)
        self._drop_checkpoints(key)

    def bring_back(self, key: PartitionKey, name: str, log_start_offset: int) -> None:
        """The directory `name` has what is the partition after all, from this offset on: it gets its place again, not
        opened yet. Raises OSError, and KAFKA_STORAGE_ERROR where the checkpoints cannot be written.
        """
        # First what says where its log begins: a crash in between must not bring deleted records back.
        if log_start_offset > self.log_start_offsets.get(key, 0):
            self.log_start_offsets[key] = log_start_offset
            self.write_checkpoints()
        self._files.rename(self._file(name), self._file(directory_name(*key)))
        # Durably, before anything is done to the log: where it begins may change, and the name would not say so.
        sync_directory(self._files, self.path)
        self.kept_for_missing.discard(key)
        self._closed_properly[key] = False

    def forget(self, key: PartitionKey) -> None:
        """The partition is gone from its place. Checkpoints that cannot be written now are written by upkeep, or
        before the name is used again.
        """
        self._closed_properly.pop(key, None)
        self._seen_at_start.pop(key, None)
        self._write_forgotten(key, was_named=self._drop_checkpoints(key))

    def forget_marked(self, key: PartitionKey) -> None:
        """What had the name is gone, and if one of `deleted` speaks of it yet, the checkpoints may. What has come to
        the name meanwhile, or is about to, has silenced those before, and keeps what it has.
        """
        with self._checkpoint_lock:  # under which the checkpoints come to name what moves here
            if not self.deleted.speak_of(key):
                return
            was_named = self._drop_locked(key)
        self._write_forgotten(key, was_named=was_named)

    def _write_forgotten(self, key: PartitionKey, *, was_named: bool) -> None:
        try:
            if was_named or key in self._outdated:
                self.write_checkpoints()
            self.deleted.remove([key])
            self.write_cleaner_checkpoint()
        except KafkaError as error:
            logger.warning(
                "checkpoints of a partition that is gone stay for now",
                partition=f"{key[0]}-{key[1]}",
                reason=error.message,
            )

    def forget_missing(self, keys: Iterable[PartitionKey]) -> None:
        """Of these partitions nothing is missing, or nobody asks for it; the checkpoints written next say so."""
        for key in self.kept_for_missing.intersection(keys):
            self.kept_for_missing.discard(key)
            self._drop_checkpoints(key)

    def _named(self) -> tuple[dict[PartitionKey, int], ...]:
        """What the checkpoints say of partitions, whether these have a directory or not."""
        return self.recovery_points, self.high_watermarks, self.log_start_offsets

    def _drop_checkpoints(self, key: PartitionKey) -> bool:
        """Returns whether there were any."""
        with self._checkpoint_lock:
            return self._drop_locked(key)

    def _drop_locked(self, key: PartitionKey) -> bool:
        if not [offsets for offsets in self._named() if offsets.pop(key, None) is not None]:
            return False
        self._outdated.add(key)
        return True

    def write_checkpoints(self, high_watermarks: Mapping[PartitionKey, int] | None = None) -> None:
        """Recovery points, log start offsets and high watermarks (those given replace older ones); durable.

        A partition that is on disk but not open keeps what its checkpoint said. Raises KAFKA_STORAGE_ERROR.
        """
        with self._checkpoint_lock, storage_errors(self.path):
            outdated, logs = self._outdated.copy(), dict(self.logs)
            for key, log in logs.items():
                self.recovery_points[key] = log.recovery_checkpoint
                if log.log_start_offset > log.segments[0].base_offset:
                    self.log_start_offsets[key] = log.log_start_offset
                else:
                    self.log_start_offsets.pop(key, None)
            # Taken before anything is written: what fails now is written next time. A partition may be gone since.
            self.high_watermarks |= {key: at for key, at in (high_watermarks or {}).items() if key in logs}
            self._write_cleaner_offsets()
            self._offset_files.write(LOG_START_OFFSET_FILE, self.log_start_offsets)
            self._offset_files.write(HIGH_WATERMARK_FILE, self.high_watermarks)
            # Last: while it names no partition that has moved here, a start takes what the others say from MoveFacts.
            self._offset_files.write(RECOVERY_POINT_FILE, self.recovery_points)
            self._outdated -= outdated
            self.deleted.remove(outdated - self.high_watermarks.keys() - self.recovery_points.keys())

    def _write_lowered(self, key: PartitionKey, log: PartitionLog, high_watermark: int) -> None:
        """The log is about to lose its end: no checkpoint on the disk may say more of it than the log does now. Mostly
        none does, for what is taken back is new. Raises KAFKA_STORAGE_ERROR.
        """
        with self._checkpoint_lock:
            known = self.high_watermarks.get(key, 0)
            if (
                self.recovery_points.get(key, 0) > log.recovery_checkpoint
                or self.log_start_offsets.get(key, 0) > log.log_start_offset
                or known > high_watermark
            ):
                # Until it is written: a failure must not pass for done the next time.
                self._outdated.add(key)
            is_outdated = key in self._outdated
        if is_outdated:
            self.write_checkpoints({key: min(known, high_watermark)})

    def write_cleaner_checkpoint(self) -> None:
        """How far each log is compacted, if that has changed; durable. Raises KAFKA_STORAGE_ERROR."""
        with self._checkpoint_lock, storage_errors(self.path):
            self._write_cleaner_offsets()

    def _write_cleaner_offsets(self) -> None:
        opened = {key: log.first_dirty_offset for key, log in self.logs.copy().items()}
        self._cleaner.write(opened, self.recovery_points)

    def close(
        self,
        high_watermarks: Mapping[PartitionKey, int] | None = None,
        *,
        marker: CleanShutdown = UNKNOWN_PROCESS,
    ) -> None:
        """Close every log, also when one fails, write the checkpoints, so that what could be closed has little to
        check, and the `marker`. Raises KAFKA_STORAGE_ERROR.

        After a failure, or while a partition on disk was not opened since a crash or could not be, there is no marker,
        and the next opening recovers every log from its recovery point on: one that spoke of all logs but one would
        have to be kept apart on the very disk that has just failed.
        """
        try:
            errors = close_logs(self.path, self.logs, self.environment)
            self._closed_properly |= {key: error is None for key, error in errors.items()}
            self._offset_files.forget()  # the marker vouches for these three
            self.write_checkpoints(high_watermarks)
            for error in filter(None, errors.values()):
                raise error
            with storage_errors(self.path):
                check_all_closed(self._files, self.path, self._is_closed_properly)
                clean_shutdown.write_marker(self._files, self.path, marker)
        finally:
            self.abandon()

    def _is_closed_properly(self, key: PartitionKey) -> bool:
        return key in self.kept_for_missing or self._closed_properly.get(key, self.was_clean)

    def abandon(self) -> None:
        """Let go of everything without writing: the directory has failed, or a test crashes it."""
        for log in self.logs.values():
            log.release()
        self.logs.clear()
        if self._lock_fd >= 0:
            self._files.close(self._lock_fd)
            self._lock_fd = -1
