"""The log of a future replica: copied from the current one, which it then takes the place of.

One thread at a time works on it. Meanwhile the current log is appended to, cut and trimmed by others; what it is for is
that nobody has to wait for it but during `complete` and `promote`, when nothing is appended to the current log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.errors import storage_error, storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import (
    MoveFacts,
    begin_anew,
    read_facts,
    remove_facts,
    remove_future,
    write_facts,
)
from barnabas.log.partition_log import PartitionLog
from barnabas.log.small_files import exists, sync_directory
from barnabas.records.batch import parse_header

logger = get_logger("log.moving")


class SourceFailed(KafkaError):
    """The current log cannot be read: the move cannot go on, and the next start may have better luck."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.code, error.message)


class PlaceUnclear(KafkaError):
    """The change of places has begun, and the disk did not say that it is done: the next start finds out.

    Both directories have the same records; nothing may be appended to either.
    """


class FutureLog:
    """Owner of a future replica's log, until it is dropped or promoted."""

    def __init__(self, home: LogDirectory, name: str, current: PartitionLog) -> None:
        """In the directory `name` of `home`, which is there; empty, whatever was copied before. Raises
        KAFKA_STORAGE_ERROR and LogStoreError.
        """
        self._home = home
        self._name = name
        self._current = current
        self._files: Files = home.environment.files
        self._key = current.topic, current.partition
        begin_anew(self._files, home.path, name)
        self._log = PartitionLog.open(
            home.path,
            *self._key,
            current.topic_id,
            current.config,
            home.environment,
            name=name,
            cache=home.cache,
            flush_times=home.flush_times,
        )
        current.replacement.pause()

    @property
    def log_end_offset(self) -> int:
        """How far it has come."""
        return self._log.log_end_offset

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return self._log.size

    @property
    def lag(self) -> int:
        """How many offsets it is behind the current one."""
        return max(self._current.log_end_offset - self._log.log_end_offset, 0)

    # -- copying ------------------------------------------------------------------------------------------------

    def copy(self, bytes_max: int) -> int:
        """Copy whole batches, `bytes_max` bytes of them or one; returns how many bytes that was.

        0 does not say that there is nothing left (`lag`): the current log may have changed meanwhile. Raises
        SourceFailed where the current one cannot be read, KafkaError where this one cannot be written, or a batch is
        damaged.
        """
        current, future = self._current, self._log
        self._follow_cuts()
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        offset, current_end = future.log_end_offset, current.log_end_offset
        if offset >= current_end:
            return 0
        try:
            with storage_errors(current.directory):
                found = current.locate(offset, bytes_max, upper_bound_offset=current_end)
                records = b"" if found is None else found.read()
        except KafkaError as error:
            if error.code == ErrorCode.offset_out_of_range:
                return 0  # it was cut, or its beginning went
            raise SourceFailed(error) from error
        if found is None:
            future.skip_to(current_end)  # compaction has left nothing before it
        elif records:
            self._append(records)
        return len(records)

    def _follow_cuts(self) -> None:
        """Take back what the current log has taken back: asked after whatever was read before was appended."""
        cut = self._current.truncator.take_lowest_cut()
        if cut < self._log.log_end_offset:
            self._log.truncate_to(cut)

    def _append(self, records: bytes) -> None:
        future, first = self._log, parse_header(records).base_offset
        if first < future.log_end_offset == future.log_start_offset:
            # The current log begins in the midst of a batch, which comes as a whole.
            future.truncate_fully_and_start_at(first)
        future.append_as_follower(records)

    def flush(self) -> None:
        """Make what was copied durable, so that less is left for `promote`. Raises KAFKA_STORAGE_ERROR."""
        self._log.flush()

    # -- the change of places -----------------------------------------------------------------------------------

    def complete(self, bytes_max: int) -> None:
        """Copy the rest, and what batches do not tell; nothing may be appended to the current log. Raises as `copy`."""
        current, future = self._current, self._log
        self.copy(bytes_max)  # also where the ends are the same: it may have been cut, and grown again
        while future.log_end_offset != current.log_end_offset:
            assert future.log_end_offset < current.log_end_offset, (
                "it has nothing that the current one has not"
            )
            self.copy(bytes_max)
        future.maybe_increment_log_start_offset(current.log_start_offset)
        future.take_over(current)

    def promote(self, former_home: LogDirectory, high_watermark: int) -> PartitionLog:
        """Take the place of the current log, which is put away in its directory, `former_home`, and which nothing may
        be appended to; returns this one, opened in its place.

        Raises KafkaError with the current log still in its place, and PlaceUnclear.
        """
        home, files, current = self._home, self._files, self._current
        directory, place = (
            os.path.join(home.path, self._name),
            os.path.join(home.path, directory_name(*self._key)),
        )
        self._log.close()
        with storage_errors(home.path):
            former = read_facts(files, current.directory)
            facts = MoveFacts(
                1 if former is None else former.number + 1,
                self._log.log_end_offset,
                self._log.log_start_offset,
                high_watermark,
                current.first_dirty_offset,
            )
            home.forget_place(self._key)
            write_facts(files, directory, facts)
            files.rename(directory, place)
        try:
            sync_directory(files, home.path)
            # Before anything is appended here: nobody may find this one alone, and take the former for the partition.
            former_home.put_away(self._key)
        except (OSError, KafkaError) as error:
            raise _unclear(home.path, error) from error
        try:
            with contextlib.suppress(KafkaError):  # the file says it, and upkeep writes them
                home.adopt(self._key, facts, closed_properly=True)
            opened = home.open_partition(*self._key, current.topic_id, current.config)
        except Exception as error:
            raise _unclear(home.path, error) from error
        # Not all of it is in files: leader epochs that have written nothing, for which an idle leader is asked
        # (KAFKA-15608), and transactions that are decided by a marker which is not replicated yet.
        opened.take_over(current)
        return opened

    def drop(self) -> None:
        """It is wanted no longer. Raises KAFKA_STORAGE_ERROR."""
        self.leave()
        remove_future(self._files, self._home.path, self._name)

    def leave(self) -> None:
        """Let go of it as a crash would: the next start begins with it anew."""
        self._current.replacement.go_on()
        self._log.release()


def _unclear(path: str, error: Exception) -> PlaceUnclear:
    if isinstance(error, KafkaError):
        return PlaceUnclear(ErrorCode.kafka_storage_error, error.message)
    cause = error if isinstance(error, OSError) else OSError(str(error))
    return PlaceUnclear(ErrorCode.kafka_storage_error, storage_error(path, cause).message)


def retire(
    former: LogDirectory,
    left: PartitionLog,
    home: LogDirectory,
    others: Iterable[LogDirectory],
    *,
    is_last: bool,
) -> None:
    """The partition has moved from `former` to `home`: what it left goes, and then what says which of the two counts,
    unless another log directory may have a copy yet: one of `others` that has, or one that is offline (not `is_last`).
    Raises KAFKA_STORAGE_ERROR.
    """
    key, files = (left.topic, left.partition), home.environment.files
    left.discard()
    files.remove_tree(left.directory)  # what cannot be removed now goes when the directory is opened next
    if key not in former.logs:
        former.forget(key)
    name = directory_name(*key)
    with storage_errors(home.path):
        if is_last and not any(exists(files, os.path.join(each.path, name)) for each in others):
            remove_facts(files, os.path.join(home.path, name))


def remove_unclear(home: LogDirectory, key: PartitionKey) -> None:
    """What a change of places that is unclear may have put into `home` goes, durably. Raises KAFKA_STORAGE_ERROR."""
    home.delete_partition(*key)
    with storage_errors(home.path):
        sync_directory(home.environment.files, home.path)
