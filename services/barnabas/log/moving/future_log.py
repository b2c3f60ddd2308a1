"""The log of a future replica: copied from the current one, which it then takes the place of.

One thread at a time works on it. Meanwhile the current log is appended to, cut and trimmed by others; what it is for is
that nobody has to wait for it but during `complete` and `promote`, when nothing is appended to the current log.
"""

from __future__ import annotations

import contextlib
import os
from typing import NoReturn

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.errors import storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import (
    MoveFacts,
    begin_anew,
    remove_facts,
    remove_future,
    write_facts,
)
from barnabas.log.moving.left_directory import SUFFIX as LEFT_SUFFIX
from barnabas.log.moving.left_directory import left_name, remove_left
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

    The two directories have the same records, and one of them at most has the partition's name; nothing may be appended
    to either.
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
        self._facts: MoveFacts | None = None
        begin_anew(self._files, home.path, name)
        self._log = self._open()
        current.replacement.pause()

    def _open(self, closed: MoveFacts | None = None) -> PartitionLog:
        """Open the log, which is new, or was closed properly as these facts say."""
        home, current = self._home, self._current
        return PartitionLog.open(
            home.path,
            *self._key,
            current.topic_id,
            current.config,
            home.environment,
            recovery_point=0 if closed is None else closed.recovery_point,
            log_start_offset=0 if closed is None else closed.log_start_offset,
            first_dirty_offset=-1 if closed is None else closed.first_dirty_offset,
            clean_shutdown=closed is not None,
            name=self._name,
            cache=home.cache,
            flush_times=home.flush_times,
        )

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

    def prepare(self, high_watermark: int) -> None:
        """Make all that is to be in the new place durable, after `complete`, and open it as it is to be there: later
        nothing may fail for want of room. Raises KafkaError.
        """
        home, current = self._home, self._current
        facts = MoveFacts(
            self._log.log_end_offset,
            self._log.log_start_offset,
            high_watermark,
            current.first_dirty_offset,
        )
        self._log.close()
        with storage_errors(home.path):
            home.forget_place(self._key)
            write_facts(self._files, self._directory, facts)
        self._facts = facts
        self._log = self._open(facts)
        # Not all of it is in files: leader epochs that have written nothing, for which an idle leader is asked
        # (KAFKA-15608), and transactions that are decided by a marker which is not replicated yet.
        self._log.take_over(current)

    def promote(self, former_home: LogDirectory) -> PartitionLog:
        """Take the place of the current log, which lies in `former_home`, and which nothing may be appended to since
        `complete`, after `prepare`; returns this one.

        Raises KafkaError with the current log still in its place, and PlaceUnclear.
        """
        facts = self._facts
        assert facts is not None, "it is prepared"
        self._put_away(former_home)
        self._take_place(former_home)
        former_home.let_go(self._key)
        self._home.adopt(self._key, facts)
        self._home.take_in(self._key, self._log)
        return self._log

    def clear_up(self) -> None:
        """The checkpoints say, after `promote`, what the file does; whoever has the log goes on meanwhile."""
        with (
            contextlib.suppress(KafkaError),  # the file says it still, and upkeep writes them
            storage_errors(self._place),
        ):
            self._home.write_checkpoints()
            remove_facts(self._files, self._place)

    def _put_away(self, former_home: LogDirectory) -> None:
        """The current log loses the partition's name, durably, before another directory can have it."""
        files, current = self._files, self._current
        place = current.directory
        name = left_name(*self._key, self._home.properties.directory_id, current.log_start_offset)
        left = os.path.join(former_home.path, name)
        try:
            current.rename(left)
        except KafkaError as error:
            if _is_as_before(files, place, left):
                raise
            raise _unclear(former_home.path, error) from error
        try:
            sync_directory(files, former_home.path)
        except OSError as error:
            self._bring_back(place, error)

    def _take_place(self, former_home: LogDirectory) -> None:
        """The future log gets the partition's name, durably."""
        files, home = self._files, self._home
        try:
            self._log.rename(self._place)
        except KafkaError as error:
            if not _is_as_before(files, self._directory, self._place):
                raise _unclear(home.path, error) from error
            self._bring_back(os.path.join(former_home.path, directory_name(*self._key)), error)
        try:
            sync_directory(files, home.path)
        except OSError as error:
            raise _unclear(home.path, error) from error

    def _bring_back(self, place: str, error: Exception) -> NoReturn:
        """The current log has its name again: whichever of its two names the disk has, no other directory has it."""
        try:
            self._current.rename(place)
        except KafkaError:
            raise _unclear(place, error) from error
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    @property
    def _directory(self) -> str:
        return os.path.join(self._home.path, self._name)

    @property
    def _place(self) -> str:
        return os.path.join(self._home.path, directory_name(*self._key))

    def drop(self) -> bool:
        """It is wanted no longer; returns whether all of it is gone. Raises KAFKA_STORAGE_ERROR."""
        self.leave()
        return remove_future(self._files, self._home.path, self._name)

    def leave(self) -> None:
        """Let go of it as a crash would: the next start begins with it anew."""
        self._current.replacement.go_on()
        self._log.release()


def _unclear(path: str, error: Exception) -> PlaceUnclear:
    return PlaceUnclear(ErrorCode.kafka_storage_error, f"{path}: {error}")


def _is_as_before(files: Files, old: str, new: str) -> bool:
    """Whether a renaming that failed is known to have changed nothing."""
    try:
        return exists(files, old) and not exists(files, new)
    except OSError:
        return False


def retire(former: LogDirectory, left: PartitionLog) -> None:
    """The partition has moved out of `former`: what it left there goes, now that nobody reads it any more. Raises
    KAFKA_STORAGE_ERROR.
    """
    key = (left.topic, left.partition)
    left.discard()
    with storage_errors(former.path):
        # Durably: to whoever finds two of them it says no more where the partition is.
        remove_left(former.environment.files, left.directory, key, former.environment.new_id(), sync=True)
    if key not in former.logs:
        former.forget(key)


def remove_unclear_home(home: LogDirectory, key: PartitionKey, name: str) -> None:
    """What a change of places that is unclear may have put into `home` goes, durably; `name` is that of the future
    replica's directory. Raises KAFKA_STORAGE_ERROR.
    """
    remove_future(home.environment.files, home.path, name)
    home.delete_partition(*key)


def remove_unclear_former(former: LogDirectory, left: PartitionLog) -> None:
    """The current log of a change of places that is unclear goes, durably, if it has lost the partition's name. Raises
    KAFKA_STORAGE_ERROR.
    """
    key = (left.topic, left.partition)
    left.discard()
    if left.directory.endswith(LEFT_SUFFIX):
        former.let_go(key)
        former.forget_elsewhere(key)  # first: of what is deleted by order nothing is to be missed
        with storage_errors(former.path):
            remove_left(former.environment.files, left.directory, key, former.environment.new_id(), sync=True)
