"""The part of a partition's log that begins new segments, and clears up behind what failed.

Files that an append or a roll that failed has left are removed at once, or, should that fail too, before anything
else is written.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Final

from barnabas.kernel.errors import KafkaError
from barnabas.log.config import LogConfig
from barnabas.log.errors import storage_error, storage_errors
from barnabas.log.flusher import LogFlusher
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.segments.segment import LOG_SUFFIX, RollLimits, Segment, remove_marked
from barnabas.log.trust import Trust

_IN_ITS_PLACE: Final = "something else is in the place of the log's newest segment"


class SegmentRoller:
    """Owner of the settings that end a segment, and of what a write or a roll that failed has left."""

    def __init__(
        self, state: LogState, locks: Locks, trust: Trust, producers: LogProducers, flusher: LogFlusher
    ) -> None:
        self.limits = _roll_limits(state.factory.config)
        self.is_unclear = False
        """Whether files hold what is not of the log: the rest of a write that failed, or of a roll."""
        self._unfinished: Segment | None = None
        self._state = state
        self._locks = locks
        self._trust = trust
        self._producers = producers
        self._flusher = flusher

    def update_config(self, config: LogConfig) -> None:
        """Obey other settings from now on; the active segment's index limits change at the next roll."""
        self._state.factory.config = config
        self.limits = _roll_limits(config)

    def roll(self) -> None:
        """Begin a new segment now, unless the active one is empty. For a thread."""
        with self._locks.hold_log_end(), storage_errors(self._state.directory):
            if self._state.end[1].size:
                self.roll_at(self._state.end[0])

    def skip_to(self, offset: int) -> None:
        """The next record gets `offset`, or a later one. For a thread."""
        with self._locks.hold_log_end(), storage_errors(self._state.directory):
            state = self._state
            if offset > state.end[0]:
                segment = self.roll_at(offset)
                self._producers.state.end_offset = offset
                state.end = (offset, segment, segment.size, state.end[3])

    def roll_if_at(self, offset: int) -> bool:
        """Roll, so that all there was may go, unless something was appended past `offset` meanwhile."""
        with self._locks.hold_log_end():
            is_there = self._state.end[0] <= offset
            if is_there:
                self.roll_at(self._state.end[0])
            return is_there

    def roll_at(self, base_offset: int) -> Segment:
        """A new active segment from `base_offset` on, with a producer snapshot at its start; with the lock of the end.

        Raises OSError: the old segment is then the active one, and the files of the new one are gone again.
        """
        self._trust.check_writable()
        state = self._state
        old = state.end[1]
        base_offset = max(base_offset, state.end[0])
        if base_offset == old.base_offset:
            return old
        if self.is_unclear:
            self.clear_up()
        self.check_place()
        self._flusher.sync_before_roll()
        if old.size:
            old.finish()
        new = self._unfinished = state.factory.make_empty(base_offset)
        try:
            new.create_files()
            self._producers.take_snapshot(base_offset, sync=False)
        except OSError:
            self.is_unclear = True
            with contextlib.suppress(OSError):
                self.clear_up()
            raise
        # Nothing can fail from here on.
        self._unfinished = None
        state.directory_is_dirty = True
        with state.publishing:
            # An old one without records has its first offset too far ahead of its base.
            state.segments = (*(state.segments if old.size else state.segments[:-1]), new)
        state.end = (state.end[0], new, 0, state.end[3])
        if old.size:
            old.unpin()
        else:
            with contextlib.suppress(OSError):
                remove_marked(state.files, old.mark_deleted())
        return new

    def check_place(self) -> None:
        """Raises OSError where the name of the active segment's file leads to nothing, or to less than the segment has:
        what is in the place of the log's directory is not the log. A segment begun there would pass for all of it at
        the next start, and what came before for deleted; one taken back is not found there, and would come back with
        the log. For a thread.
        """
        active = self._state.end[1]
        size = active.size  # first: it may grow meanwhile
        path = active.path(LOG_SUFFIX)
        if self._state.files.stat(path).st_size < size:
            raise OSError(errno.ESTALE, _IN_ITS_PLACE, path)

    def failed_write(self, error: OSError) -> KafkaError:
        """An append's write failed; what it left is removed now, or before the next. Returns what to raise."""
        self.is_unclear = True
        with contextlib.suppress(OSError):
            self.clear_up()
        return storage_error(self._state.directory, error)

    def clear_up(self) -> None:
        """Remove what a write or a roll that failed has left; with the lock of the end. Raises OSError; nothing
        may be written before it was done, or the log would run past a segment that is none, or leave foreign
        bytes behind its end.
        """
        if self._unfinished is not None:
            self._unfinished.remove_files()
            self._unfinished = None
        self._state.end[1].remove_rest()
        self.is_unclear = False


def _roll_limits(config: LogConfig) -> RollLimits:
    return RollLimits(config.segment_bytes, config.roll_ms)
