"""The part of a partition's log that is read: nothing here changes anything or takes a lock.

Readers see the list of segments and the end of the log as immutable tuples, which the other parts replace whole.
"""

from __future__ import annotations

import bisect

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.errors import storage_errors
from barnabas.log.log_slice import LogSlice, ends_by, stretch_of
from barnabas.log.log_state import LogEnd, LogState
from barnabas.log.segments import timestamp_lookup
from barnabas.log.segments.segment import POSITION_HINTS_MAX, Segment
from barnabas.log.segments.timestamp_lookup import TimestampedOffset
from barnabas.log.segments.transaction_index import AbortedTransaction


class LogReader:
    """What can be asked of a partition's log from any thread; owns nothing."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int | None = None,
        min_one_batch: bool = True,
    ) -> bytes:
        """Whole batches from the one that holds `offset`; empty at the end. See `locate`."""
        with storage_errors(self._state.directory):
            found = self.locate(
                offset, max_bytes, upper_bound_offset=upper_bound_offset, min_one_batch=min_one_batch
            )
            return b"" if found is None else found.read()

    def locate(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int | None = None,
        min_one_batch: bool = True,
        nowait: bool = False,
    ) -> LogSlice | None:
        """Where the batches from `offset` on stand; None when there are none below `upper_bound_offset`.

        At most `max_bytes`, but the first batch always (with `min_one_batch`); of one segment; whole batches, the
        first possibly beginning before `offset`. With `nowait` raises BlockingIOError where it would wait for the
        disk: call again in a thread. Raises OFFSET_OUT_OF_RANGE outside [log start offset, log end offset].
        """
        state = self._state
        while True:
            # In this order: a segment that holds an offset before the end is in the list.
            end = state.end
            segments = state.segments
            try:
                return self._locate(
                    end, segments, offset, max_bytes, upper_bound_offset, min_one_batch, nowait
                )
            except FileNotFoundError:
                # Its files went with retention, a truncation or compaction; there is a newer list then.
                if segments is state.segments:
                    raise

    def _locate(
        self,
        end: LogEnd,
        segments: tuple[Segment, ...],
        offset: int,
        max_bytes: int,
        upper_bound_offset: int | None,
        min_one_batch: bool,
        nowait: bool,
    ) -> LogSlice | None:
        end_offset, active, active_size, generation = end
        state = self._state
        if not state.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not within [{state.log_start_offset}, {end_offset}]",
            )
        bound = end_offset if upper_bound_offset is None else min(upper_bound_offset, end_offset)
        if offset >= bound:
            return None
        number = len(segments) - 1
        if offset < segments[number].base_offset:
            number = max(bisect.bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)
        for at in range(number, len(segments)):
            segment = segments[at]
            if nowait and not segment.is_open:
                raise BlockingIOError("the segment is not open")
            size = active_size if segment is active else segment.size
            # Taken first: what is learnt before a truncation goes into a dictionary that nobody reads after it.
            hints = segment.hints
            start = segment.position_of(offset, nowait=nowait)
            if start < size:
                is_whole = bound == end_offset if segment is active else ends_by(segments, at, bound)
                length, after = stretch_of(
                    segment, start, size, max_bytes, bound, is_whole, min_one_batch, nowait
                )
                if length == 0:
                    return None
                if after is not None:
                    if len(hints) >= POSITION_HINTS_MAX:
                        hints.clear()
                    hints[after] = start + length
                ends_before = segments[at + 1].base_offset if at + 1 < len(segments) else bound
                last = min(bound if after is None else after, ends_before)
                return LogSlice(segment.open().file, start, length, state.truncations, generation, last)
        return None

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp` (ms); None without one. May read and
        decompress.
        """
        state = self._state
        with storage_errors(state.directory):
            return timestamp_lookup.offset_for_timestamp(state.segments, timestamp, state.log_start_offset)

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the greatest timestamp (KIP-734); None in a log without timestamps."""
        with storage_errors(self._state.directory):
            return timestamp_lookup.max_timestamp(self._state.segments)

    def earliest(self) -> TimestampedOffset:
        """The log start offset, without a timestamp, and the epoch that wrote it (-1 if unknown)."""
        start = self._state.log_start_offset
        return TimestampedOffset(start, -1, self._state.epochs.epoch_for_offset(start))

    def latest(self) -> TimestampedOffset:
        """The log end offset, without a timestamp, and the newest epoch (-1 if unknown)."""
        return TimestampedOffset(self._state.end[0], -1, self._state.epochs.latest_epoch)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when the epoch is unknown."""
        return self._state.epochs.end_offset_for(leader_epoch, self._state.end[0])

    def aborted_transactions(
        self, offset: int, upper_bound_offset: int, *, nowait: bool = False
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in [offset, upper_bound_offset), for a read_committed fetch.

        With `nowait` raises BlockingIOError when a segment's list would have to be read first.
        """
        segments = self._state.segments
        first = max(bisect.bisect_right(segments, offset, key=lambda each: each.base_offset) - 1, 0)
        found: list[AbortedTransaction] = []
        for segment in segments[first:]:
            for aborted in segment.transaction_index.entries(nowait=nowait):
                if aborted.last_offset >= offset and aborted.first_offset < upper_bound_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_bound_offset:
                    return found
        return found
