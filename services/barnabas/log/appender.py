"""The part of a partition's log that grows: appends, and the producers' state that follows them.

A client's plain batch is taken in one go (`append_plain`), all else the general way, in which batches are lists; the
tests hold the two to each other.

An append on an event loop (`may_block=False`) waits for no thread: it raises WouldBlock where one changes the log's
end, or where more of the disk is needed than one write. All that can fail happens before the batches are written,
or is taken back; after that only memory changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import INT_MAX
from barnabas.log.errors import WouldBlock, storage_errors
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.opening import loader
from barnabas.log.prepared_batches import (
    AppendInfo,
    AppendOrigin,
    CheckedAppend,
    PreparedBatch,
    assign_offsets,
    check_client_producer,
    check_continues,
    check_producers,
    prepare_follower_batches,
    prepare_leader_batches,
)
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.verification_guards import NO_GUARD
from barnabas.log.roller import SegmentRoller
from barnabas.log.segments.segment import AppendedBatch, Segment
from barnabas.log.trust import Trust
from barnabas.records.batch import CRC_START, BatchHeader, Buffer, crc_of_tail, patched_prefix
from barnabas.records.validate import LongCheck, WalkTime, needs_walk, plain_batch


class LogAppender:
    """Owns nothing: moves the log's end forward."""

    def __init__(
        self,
        state: LogState,
        locks: Locks,
        trust: Trust,
        producers: LogProducers,
        roller: SegmentRoller,
        clock: Clock,
    ) -> None:
        self._state = state
        self._locks = locks
        self._trust = trust
        self._producers = producers
        self._roller = roller
        self._clock = clock

    def needs_walk(self, records: Buffer) -> bool:
        """Whether the records in a client's batch have to be looked at, which may take long (`check`)."""
        return needs_walk(records, self._state.factory.config, self._clock.now_ms())

    def check(
        self,
        records: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        time: WalkTime | None = None,
    ) -> CheckedAppend:
        """All checks that need no look at the log, and no lock: for any thread. `append_checked` follows.

        Raises KafkaError as `records.validate` does, and LongCheck where `time` does not suffice.
        """
        now_ms, config = self._clock.now_ms(), self._state.factory.config
        prepared = prepare_leader_batches(records, config, origin, now_ms, time=time)
        return CheckedAppend(prepared, origin, now_ms if config.is_log_append_time else -1)

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
        may_block: bool = True,
        time: WalkTime | None = None,
    ) -> AppendInfo:
        """Check, number and write a batch (a coordinator may send several, appended as one).

        `guard` and `transaction_version` as `check_producers`. Raises KafkaError: what `check` and `append_checked`
        refuse; the log is then as it was. WouldBlock as `append_checked`, and where `time` does not suffice for a look
        at the records.
        """
        if origin is AppendOrigin.CLIENT and (info := self.append_plain(records, leader_epoch)) is not None:
            return info
        try:
            checked = self.check(records, origin=origin, time=time)
        except LongCheck:
            raise WouldBlock from None
        return self.append_checked(
            checked, leader_epoch, guard=guard, transaction_version=transaction_version, may_block=may_block
        )

    def append_checked(
        self,
        checked: CheckedAppend,
        leader_epoch: int,
        *,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
        may_block: bool = True,
    ) -> AppendInfo:
        """Number and write what was checked.

        Raises KafkaError: what `check_producers` refuses, FENCED_LEADER_EPOCH when the
        log has seen a newer epoch, KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was. Without
        `may_block` (on an event loop) raises WouldBlock, the log as it was, when the append needs a new segment or
        anything else of the disk but one write into the page cache.
        """
        prepared, _, append_time = checked
        state, locks, producers = self._state, self._locks, self._producers
        now_ms = self._clock.now_ms()
        if not locks.log_end.acquire(may_block):
            raise WouldBlock
        try:
            latest_epoch = state.epochs.latest_epoch
            if leader_epoch < latest_epoch or leader_epoch < locks.next_epoch:
                raise KafkaError(
                    ErrorCode.fenced_leader_epoch,
                    f"leader epoch {leader_epoch} is older than {max(latest_epoch, locks.next_epoch)}",
                )
            repeated = check_producers(
                producers, checked, leader_epoch, guard=guard, transaction_version=transaction_version
            )
            if repeated is not None:
                first, last, timestamp = repeated.first_offset, repeated.last_offset, repeated.timestamp
                return AppendInfo(first, last, timestamp, state.log_start_offset, True)
            first_offset = state.end[0]
            parts, batches, length = assign_offsets(prepared, first_offset, leader_epoch)
            segment = self._write(parts, batches, length, now_ms, may_block)
            # The batches are in the file: nothing from here on touches the disk, and nothing can fail.
            if leader_epoch > latest_epoch:
                state.epochs.assign(leader_epoch, first_offset)
            self._replay(segment, prepared, batches)
            return AppendInfo(
                first_offset, batches[-1].last_offset, append_time, state.log_start_offset, False
            )
        finally:
            locks.release_log_end()

    def append_plain(self, records: Buffer, leader_epoch: int) -> AppendInfo | None:
        """Check, number and write a client's batch of which nothing is special; None, with nothing changed, otherwise.

        Nearly every append is one: a single batch that is right in all that its header can tell, under the leader epoch
        that the log has seen last, for which the active segment has room. The checks are those of the general way, in
        the same order.

        Never waits for another thread. Raises KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was.
        """
        state, locks, roller = self._state, self._locks, self._roller
        config, now_ms, size = state.factory.config, self._clock.now_ms(), len(records)
        header = plain_batch(records, config, now_ms) if size <= config.segment_bytes else None
        if header is None:
            return None
        _, _, _, _, crc, _, delta, _, newest, producer_id, _, _, _ = header
        tail = bytes(records[CRC_START:])
        if crc_of_tail(tail) != crc or not locks.log_end.acquire(False):
            return None
        try:
            if leader_epoch != state.epochs.latest_epoch or leader_epoch < locks.next_epoch:
                return None
            if producer_id >= 0 and not self._is_next(header, leader_epoch):
                return None
            self._trust.check_writable()
            base_offset, segment, _, truncations = state.end
            last_offset = base_offset + delta
            if roller.is_unclear or segment.should_roll(size, last_offset, newest, now_ms, roller.limits):
                return None
            prefix = patched_prefix(header, base_offset, leader_epoch)
            try:
                segment.append((prefix, tail), ((base_offset, last_offset, newest, size),), size)
            except OSError as error:
                raise roller.failed_write(error) from error
            # The batch is in the file: nothing from here on touches the disk, and nothing can fail.
            producers = self._producers
            producers.state.replay(header, base_offset, newest)
            if producer_id >= 0:
                producers.refused.on_written(producer_id)
            state.end = (last_offset + 1, segment, segment.size, truncations)
            return AppendInfo(base_offset, last_offset, -1, state.log_start_offset, False)
        finally:
            locks.release_log_end()

    def _is_next(self, header: BatchHeader, leader_epoch: int) -> bool:
        """Whether the batch follows what its producer wrote, repeats nothing and begins no transaction."""
        try:
            return check_client_producer(self._producers, header, leader_epoch) is None
        except KafkaError:
            return False

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int = INT_MAX, may_block: bool = True
    ) -> AppendInfo | None:
        """Write the leader's batches as they are; a batch cut at the end is left out, None when none is whole.

        So is all from a batch on that was written after `leader_epoch`, under which the leader was asked: it comes from
        a log that was truncated while it was read (KAFKA-18723).

        Raises CORRUPT_MESSAGE for a bad batch, OFFSET_OUT_OF_RANGE for offsets that do not continue this log,
        FENCED_LEADER_EPOCH for a batch of an older leader epoch than one that has records here already,
        KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was. WouldBlock as `append_as_leader`.
        """
        prepared, batches, length = prepare_follower_batches(records, leader_epoch)
        if not batches:
            return None
        state, locks = self._state, self._locks
        now_ms = self._clock.now_ms()
        if not locks.log_end.acquire(may_block):
            raise WouldBlock
        try:
            end_offset = state.end[0]
            check_continues(prepared, end_offset, state.epochs.epoch_for_offset(end_offset - 1))
            parts: list[Buffer] = [memoryview(records)[:length]]
            segment = self._write(parts, batches, length, now_ms, may_block)
            # The leader's batches decide: an epoch that this replica began itself and wrote nothing in is not one.
            state.epochs.truncate_from_end(batches[0].first_offset)
            for item in prepared:
                state.epochs.assign(item.header.partition_leader_epoch, item.header.base_offset)
            self._replay(segment, prepared, batches)
            return AppendInfo(
                batches[0].first_offset, batches[-1].last_offset, -1, state.log_start_offset, False
            )
        finally:
            locks.release_log_end()

    def _write(
        self,
        parts: Sequence[Buffer],
        batches: list[AppendedBatch],
        length: int,
        now_ms: int,
        may_block: bool,
    ) -> Segment:
        """Write the batches at the log's end, which stays where it is; returns the segment that has them now."""
        self._trust.check_writable()
        state, roller = self._state, self._roller
        segment = state.end[1]
        newest = batches[0].max_timestamp
        if len(batches) > 1:
            newest = max([batch.max_timestamp for batch in batches])
        rolls = segment.should_roll(length, batches[-1].last_offset, newest, now_ms, roller.limits)
        if rolls or roller.is_unclear:
            if not may_block:
                raise WouldBlock
            with storage_errors(state.directory):
                if roller.is_unclear:
                    roller.clear_up()
                if rolls:
                    segment = roller.roll_at(batches[0].first_offset)
        try:
            segment.append(parts, batches, length)
        except OSError as error:
            raise roller.failed_write(error) from error
        return segment

    def _replay(self, segment: Segment, prepared: list[PreparedBatch], batches: list[AppendedBatch]) -> None:
        """The batches stand in `segment`: the producers' state follows, then the end that readers see."""
        producers = self._producers
        state, refused, guards = producers.state, producers.refused, producers.guards
        for item, batch in zip(prepared, batches, strict=True):
            if item.marker is not None:
                completed = state.replay_marker(item.header, item.marker, batch.first_offset)
                loader.record_completion(segment, completed)
                guards.on_marker(item.header.producer_id, item.header.producer_epoch)
            elif not item.header.is_control:
                state.replay(item.header, batch.first_offset, batch.max_timestamp)
                refused.on_written(item.header.producer_id)
                if item.header.is_transactional:
                    guards.on_begun(item.header.producer_id, item.header.producer_epoch)
            else:
                state.end_offset = batch.last_offset + 1
        log = self._state
        log.end = (batches[-1].last_offset + 1, segment, segment.size, log.end[3])
