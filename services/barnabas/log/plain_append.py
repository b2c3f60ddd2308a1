"""The plain append: one batch of a client's of which nothing is special, taken in one go.

Nearly every append is one: a single batch that is right in all that its header can tell, under the leader epoch that
the log has seen last, for which the active segment has room. `LogAppender` asks here first, and takes what is left
alone its general way, in which batches are lists. The checks are the same in the same order, and the tests hold the two
to each other.
"""

from __future__ import annotations

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import KafkaError
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.prepared_batches import AppendInfo, check_client_producer
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.roller import SegmentRoller
from barnabas.log.trust import Trust
from barnabas.records.batch import CRC_START, BatchHeader, Buffer, crc_of_tail, patched_prefix
from barnabas.records.validate import plain_batch


class PlainAppender:
    """Owns nothing: moves the log's end forward by one plain batch."""

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
        self._now_ms = clock.now_ms

    def append(self, records: Buffer, leader_epoch: int) -> AppendInfo | None:
        """Check, number and write the batch in `records`; None, with nothing changed, when it is not plain.

        Never waits for another thread. Raises KAFKA_STORAGE_ERROR when the disk refuses; the log is then as it was.
        """
        state, locks, roller = self._state, self._locks, self._roller
        config, now_ms, size = state.factory.config, self._now_ms(), len(records)
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
            if producer_id >= 0 and not self._is_next(header):
                return None
            self._trust.check_writable()
            first_offset, segment, _, truncations = state.end
            last_offset = first_offset + delta
            if roller.is_unclear or segment.should_roll(size, last_offset, newest, now_ms, roller.limits):
                return None
            prefix = patched_prefix(header, first_offset, leader_epoch)
            try:
                segment.append((prefix, tail), ((first_offset, last_offset, newest, size),), size)
            except OSError as error:
                raise roller.failed_write(error) from error
            # The batch is in the file: nothing from here on touches the disk, and nothing can fail.
            producers = self._producers
            producers.state.replay(header, first_offset, newest)
            if producer_id >= 0:
                producers.refused.on_written(producer_id)
            state.end = (last_offset + 1, segment, segment.size, truncations)
            return AppendInfo(first_offset, last_offset, -1, state.log_start_offset, False)
        finally:
            locks.release_log_end()

    def _is_next(self, header: BatchHeader) -> bool:
        """Whether the batch follows what its producer wrote, and repeats nothing."""
        producers = self._producers
        try:
            return check_client_producer(producers.state, producers.refused, header) is None
        except KafkaError:
            return False
