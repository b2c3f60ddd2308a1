"""The part of a partition's log that lets its beginning go: retention, and records deleted on demand."""

from __future__ import annotations

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log import retention
from barnabas.log.errors import storage_errors
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.roller import SegmentRoller
from barnabas.log.segments.segment import remove_marked
from barnabas.log.trust import Trust


class LogTrimmer:
    """Owns nothing: moves the log's start, and takes segments from the front."""

    def __init__(
        self, state: LogState, locks: Locks, trust: Trust, roller: SegmentRoller, clock: Clock
    ) -> None:
        self._state = state
        self._locks = locks
        self._trust = trust
        self._roller = roller
        self._clock = clock

    def delete_old_segments(self, high_watermark: int) -> int:
        """Apply retention.ms, retention.bytes and the log start offset; returns how many segments went. For a
        thread.

        A segment with offsets at or past `high_watermark` stays. An active segment all of whose records are expired
        is rolled first. The files are renamed, oldest first, so that a crash cannot bring them back half, and
        removed at once: readers keep their descriptors. Raises KAFKA_STORAGE_ERROR; what could not be renamed is
        then tried again the next time.
        """
        state = self._state
        with self._locks.upkeep, storage_errors(state.directory):
            self._trust.check_writable()
            segments = state.segments
            count = retention.deletable_count(
                segments,
                state.factory.config,
                high_watermark=high_watermark,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.end[0],
                now_ms=self._clock.now_ms(),
            )
            if count == len(segments) and not self._roller.roll_if_at(high_watermark):
                count -= 1
            marked = self._drop_oldest(count)
        remove_marked(state.files, marked)
        return count

    def _drop_oldest(self, count: int) -> list[str]:
        """Take the first `count` segments out of the log; returns the files to remove."""
        state = self._state
        gone = state.segments[:count]
        if not gone:
            return []
        self._trust.check_writable()  # or the names on disk may be another log's by now
        with state.publishing:
            state.segments = state.segments[count:]
            state.start_at(max(state.log_start_offset, state.segments[0].base_offset))
        state.directory_is_dirty = True
        marked: list[str] = []
        for number, segment in enumerate(gone):
            try:
                marked += segment.mark_deleted()
            except OSError:
                # It stands before the log's start, where nobody reads and the next look at retention finds it.
                with state.publishing:
                    state.segments = (*gone[number:], *state.segments)
                remove_marked(state.files, marked)
                raise
        return marked

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records before `offset` are gone (DeleteRecords, or the leader's start); returns whether that is news.

        The files follow with the next `delete_old_segments`. Raises OFFSET_OUT_OF_RANGE past the log's end; that
        it is not past the high watermark is the caller's to check.
        """
        state = self._state
        with state.publishing:
            if offset > state.end[0]:
                raise KafkaError(
                    ErrorCode.offset_out_of_range, f"offset {offset} is past the log's end, {state.end[0]}"
                )
            if offset <= state.log_start_offset:
                return False
            state.start_at(offset)
            return True
