"""The part of a partition's log that takes records back from its end, as a follower does."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import LONG_MAX
from barnabas.kernel.logs import get_logger
from barnabas.log.cleaning.replacement import SegmentReplacement
from barnabas.log.cleaning.segment_swap import rename_all
from barnabas.log.errors import storage_errors
from barnabas.log.flusher import LogFlusher
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.roller import SegmentRoller
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment import TEMPORARY_SUFFIX, Segment, remove_marked
from barnabas.log.small_files import SyncError, sync_directory
from barnabas.log.trust import Trust

logger = get_logger("log.truncation")


class LogTruncator:
    """Moves the log's end back, and with it whatever says how far the log is.

    Before that what was written down of it comes down: else a crash might leave a recovery point that vouches for what
    is written in place of what went.
    """

    def __init__(
        self,
        state: LogState,
        locks: Locks,
        trust: Trust,
        producers: LogProducers,
        roller: SegmentRoller,
        flusher: LogFlusher,
        replacement: SegmentReplacement,
    ) -> None:
        self._state = state
        self._locks = locks
        self._trust = trust
        self._producers = producers
        self._roller = roller
        self._flusher = flusher
        self._replacement = replacement
        self._lowest_cut = LONG_MAX
        self.write_lowered: Callable[[int], None] = _nothing_is_written_down
        """Has the directory's checkpoints say no more of the log than its recovery point and its start, and no higher
        watermark than the offset given. Raises KafkaError where the disk refuses."""

        self.write_compacted: Callable[[], None] = _nothing_is_written_down
        """Has the directory's checkpoint say how far the log is compacted. Raises KafkaError where the disk refuses."""

    def take_lowest_cut(self) -> int:
        """Where the log ended at the lowest since this was asked last, for whoever copies it: what he has read before
        he asks may be gone from there on. LONG_MAX if nothing was taken back.
        """
        with self._state.publishing:
            cut, self._lowest_cut = self._lowest_cut, LONG_MAX
            return cut

    def truncate_to(self, offset: int) -> int:
        """Drop every record from `offset` on; returns the new log end offset. For a thread.

        A batch that holds `offset` in its middle goes as a whole, and so does what a damaged batch before it has in
        doubt: the end may come out lower, in the latter case below what was committed. Epochs that begin at the end go
        in any case. Raises KAFKA_STORAGE_ERROR: where the log is not in its place, or the checkpoints cannot be
        lowered, it goes on as it was; whatever fails later, be it only a read of where to cut, has it be opened anew,
        which `Trust` then says.
        """
        state = self._state
        with self._locks.upkeep, self._locks.hold_log_end(), storage_errors(state.directory):
            self._trust.check_writable()
            if offset >= state.end[0]:
                state.epochs.truncate_from_end(state.end[0])
                return state.end[0]
            if offset < state.segments[0].base_offset:
                return self.truncate_fully_and_start_at(offset)
            self._roller.check_place()
            self._lower(offset)
            count = bisect.bisect_right(state.segments, offset, key=lambda each: each.base_offset)
            active = state.segments[count - 1]
            with self._trusted_if_done():
                active.pin()  # before it is cut: the files of its indexes are behind what is in memory from then on
                cut = active.find_cut(offset)  # before anything goes
                self._drop_newest(count)
                active.cut_at(cut)
                active.pin()  # again: what an append asks for is another now
                # Before anybody reads what is left: what is decided no more is not listed as aborted any more.
                self._producers.rebuild(cut.next_offset)
                self._restart(active, cut.next_offset)
                self._keep_end()
                return cut.next_offset

    def truncate_fully_and_start_at(self, offset: int) -> int:
        """Drop everything; the log is empty and goes on at `offset`, which is returned. Raises as `truncate_to`.

        On a full disk, or out of its place, it stays as it was: the files that it is to begin with are there before
        anything goes.
        """
        state = self._state
        with self._locks.upkeep, self._locks.hold_log_end(), storage_errors(state.directory):
            self._trust.check_writable()
            self._roller.check_place()
            state.factory.create_aside(offset)
            self._lower(offset)
            with self._trusted_if_done():
                self._drop_newest(0)
                state.epochs.remove_file()
                self._producers.remove_snapshots()
                rename_all(state.files, state.directory, offset, TEMPORARY_SUFFIX, "")
                active = state.factory.find(offset)
                active.pin()
                with state.publishing:
                    state.segments = (active,)
                    state.log_start_offset = offset
                self._restart(active, offset)
                state.epochs.clear()
                self._producers.clear(offset)
                return offset

    def _keep_end(self) -> None:
        """Where what stood right before the end was compacted, no batch says where the log ends: the name of an empty
        segment does, or the next start would find it further back, and offsets would be given twice.
        """
        end_offset, active, _, _ = self._state.end
        if _end_of(active) == end_offset:
            return
        # Recovery is to take the gap for one, though this log's own cleaner may never have run.
        self._replacement.first_dirty_offset = max(0, self._replacement.first_dirty_offset)
        try:
            self.write_compacted()  # if the checkpoint says less
        except KafkaError as error:
            # Until the next one a start would report the gap as a loss.
            logger.warning("cannot keep that the log has a gap", log=self._state.directory, reason=str(error))
        try:
            self._roller.roll_at(end_offset)
        except SyncError:
            raise
        except OSError as error:
            # What is there is right until the next start, and again once something is appended.
            logger.warning("cannot keep where the log ends", log=self._state.directory, reason=str(error))

    def _lower(self, offset: int) -> None:
        """Have nothing vouch for what stands from `offset` on, or for the segment around it: where in there the log is
        to end is not known yet. Raises KafkaError and OSError; the log is then as it was, but for a recovery point that
        may vouch for less.
        """
        if self._roller.is_unclear:
            self._roller.clear_up()
        state, flusher = self._state, self._flusher
        holding = bisect.bisect_right(state.segments, offset, key=lambda each: each.base_offset) - 1
        vouched = state.segments[holding].base_offset if holding >= 0 else offset
        former = state.log_start_offset
        with state.publishing:
            flusher.recovery_point = min(flusher.recovery_point, vouched)
            state.log_start_offset = min(former, offset)
        try:
            self.write_lowered(offset)
        except BaseException:
            with state.publishing:
                state.log_start_offset = max(state.log_start_offset, former)
            raise

    @contextlib.contextmanager
    def _trusted_if_done(self) -> Iterator[None]:
        state = self._state
        # Before anything changes: a read that began before it may find other bytes.
        state.truncations.count += 1
        try:
            yield
        except BaseException as error:
            self._trust.distrust(error)
            # Nothing is written any more, so that what is there may be read as it is.
            state.end = (*state.end[:3], state.truncations.count)
            raise

    def _drop_newest(self, count: int) -> None:
        """Keep the first `count` segments; the newest go first, and durably, so that a crash leaves no hole."""
        state = self._state
        dropped = state.segments[count:]
        for segment in reversed(dropped):
            remove_marked(state.files, segment.mark_deleted())
        if dropped:
            sync_directory(state.files, state.directory)
        if count:
            with state.publishing:
                state.segments = state.segments[:count]

    def _restart(self, active: Segment, end_offset: int) -> None:
        """The log ends at `end_offset` in `active` from now on."""
        state, replacement, flusher = self._state, self._replacement, self._flusher
        with state.publishing:
            state.end = (end_offset, active, active.size, state.truncations.count)
            replacement.first_dirty_offset = min(replacement.first_dirty_offset, end_offset)
            state.log_start_offset = min(state.log_start_offset, end_offset)
            flusher.recovery_point = min(flusher.recovery_point, end_offset)
            self._lowest_cut = min(self._lowest_cut, end_offset)
        state.epochs.truncate_from_end(end_offset)
        state.directory_is_dirty = True


def _end_of(active: Segment) -> int:
    """The offset after its last batch, or its base. By the index in memory: that on disk may be far behind."""
    opened, end_offset = active.open(), active.base_offset
    for scanned in scan_headers(opened.file, opened.offset_index.last_position(), active.size):
        end_offset = scanned.header.last_offset + 1
    return end_offset


def _nothing_is_written_down(_: int = 0) -> None:
    """The log is in no log directory that keeps checkpoints."""
