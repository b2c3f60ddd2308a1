"""What a partition knows of its producers: idempotence and open transactions (KIP-98, KIP-360, KIP-447, KIP-890).

The state is a function of the log: `check` decides about a batch and changes nothing, `replay` is the only thing
that changes state, at append as well as when a log is opened. Pure: no files, no clock.

What a reader asks for at every fetch, the first offset that is not decided, is kept ready as one tuple, so that it
costs the same whatever is open and waits for nobody.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import NEW_EPOCH_VERSION, PRODUCER_EPOCH_MAX
from barnabas.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    BatchHeader,
    decrement_sequence,
)
from barnabas.records.control import EndTransactionMarker

BATCHES_RETAINED = 5
"""Batches per producer id among which a repeated one is recognised: what one connection may have in flight."""
PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of producer.id.expiration.ms."""
NO_OFFSET = -1
_NEVER = 2**63 - 1


class BatchMetadata(NamedTuple):
    """A batch that a producer wrote; `offset_delta` is its record count minus one, `timestamp` in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id: its epoch, its last batches, and where its open transaction began (-1 when none is open)."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_transaction_first_offset: int = NO_OFFSET,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_transaction_first_offset = current_transaction_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch with the same epoch and the same sequence range, if there is one."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch is open."""
        return self.current_transaction_first_offset != NO_OFFSET and self.producer_epoch == producer_epoch

    def check_epoch(self, producer_epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH for one that is over."""
        if producer_epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {self.producer_id} has moved on to epoch {self.producer_epoch} from {producer_epoch}",
            )

    def set_epoch(self, producer_epoch: int) -> None:
        """A new epoch starts its sequence anew."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()


class CompletedTransaction(NamedTuple):
    """A marker ended this transaction at `last_offset`; `last_stable_offset` is where the log is decided up to."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class ProducerState:
    """Owner of the producers of one partition."""

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        """The offset up to which the log has been replayed."""
        self.producers: dict[int, ProducerEntry] = {}
        self._open: OrderedDict[int, int] = OrderedDict()
        """Whose the open transactions are, by first offset, rising."""
        self._unreplicated: deque[tuple[int, int]] = deque()
        """(marker's offset, first offset) of transactions whose marker is not replicated, both rising: one that
        begins before an earlier marker's transaction holds readers back longer, and stands for both.
        """
        self._undecided: tuple[int | None, int] = (None, _NEVER)
        """(first offset not decided, the marker past which the high watermark changes that)."""
        self._changing = threading.Lock()

    # -- deciding -----------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, check_sequence: bool) -> None:
        """Whether a data batch may follow what its producer wrote; `check_sequence` is for clients' batches.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE. A producer that the log
        does not know (its records are gone, or it is new) may start with any sequence, as in Kafka since KIP-360.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        entry.check_epoch(header.producer_epoch)
        if check_sequence:
            _check_sequence(entry, header)
        if entry.current_transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction; the batch must belong to it",
            )

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> None:
        """Whether a coordinator may write this marker. Raises INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED.

        Under version 2 of transactions a marker has a newer epoch than its transaction. One of the very epoch that is
        known ends nothing, so it is taken only where nothing is open: it is sent again (KAFKA-19999). Else it would end
        the next transaction. With the last epoch that there is, others may not have obeyed: it ends what is open.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        entry.check_epoch(header.producer_epoch)
        if (
            transaction_version >= NEW_EPOCH_VERSION
            and header.producer_epoch == entry.producer_epoch
            and entry.current_transaction_first_offset != NO_OFFSET
            and header.producer_epoch != PRODUCER_EPOCH_MAX
        ):
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"the marker is of epoch {header.producer_epoch}, of which producer {entry.producer_id} has a "
                "transaction open that is not the one it ends",
            )
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    # -- replaying ----------------------------------------------------------------------------------------------

    def replay(self, header: BatchHeader, first_offset: int, max_timestamp: int) -> None:
        """A data batch stands in the log at `first_offset`."""
        last_offset = first_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        if header.producer_id < 0:
            return
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        entry.set_epoch(header.producer_epoch)
        entry.batches.append(
            BatchMetadata(header.last_sequence, last_offset, header.last_offset_delta, max_timestamp)
        )
        if len(entry.batches) > BATCHES_RETAINED:
            del entry.batches[0]
        entry.last_timestamp = max_timestamp
        if header.is_transactional and entry.current_transaction_first_offset == NO_OFFSET:
            entry.current_transaction_first_offset = first_offset
            with self._changing:
                self._open[first_offset] = header.producer_id
                self._publish()

    def replay_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int
    ) -> CompletedTransaction | None:
        """A transaction marker stands in the log at `offset`; returns the transaction that it ended, if one was
        open.
        """
        self.end_offset = offset + 1
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        first_offset = entry.current_transaction_first_offset
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.current_transaction_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        with self._changing:
            self._open.pop(first_offset, None)
            stable = next(iter(self._open), offset + 1)
            waiting = self._unreplicated
            while waiting and waiting[-1][1] >= first_offset:
                waiting.pop()
            waiting.append((offset, first_offset))
            self._publish()
        return CompletedTransaction(header.producer_id, first_offset, offset, not marker.committed, stable)

    def restore(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Start from a snapshot taken at `end_offset`."""
        self.clear(end_offset)
        self.producers.update((entry.producer_id, entry) for entry in entries)
        started = (
            (each.current_transaction_first_offset, each.producer_id) for each in self.producers.values()
        )
        with self._changing:
            self._open.update(sorted(each for each in started if each[0] != NO_OFFSET))
            self._publish()

    def take_over(self, former: ProducerState) -> None:
        """Know what `former` knows, which has replayed a log with the same records, also of what is not replicated."""
        self.restore(list(former.producers.values()), former.end_offset)
        with former._changing:
            unreplicated = list(former._unreplicated)
        with self._changing:
            self._unreplicated.extend(unreplicated)
            self._publish()

    def clear(self, end_offset: int) -> None:
        """Know nothing, from `end_offset` on."""
        self.producers.clear()
        with self._changing:
            self._open.clear()
            self._unreplicated.clear()
            self._publish()
        self.end_offset = end_offset

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms with no open transaction; returns how many."""
        idle = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.current_transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.producers[producer_id]
        return len(idle)

    # -- transactions -------------------------------------------------------------------------------------------

    def on_high_watermark(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark no longer hold back the last stable offset."""
        if high_watermark <= self._undecided[1]:
            return
        with self._changing:
            waiting = self._unreplicated
            while waiting and waiting[0][0] < high_watermark:
                waiting.popleft()
            self._publish()

    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction begins that is open, or ended by a marker not yet replicated."""
        return self._undecided[0]

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer is open under this epoch. For any thread."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.is_in_transaction(producer_epoch)

    def oldest_open_timestamp(self) -> int:
        """The time in ms of the last record of the producer whose transaction has been open the longest; -1 where none
        is. For any thread.
        """
        if self._undecided[0] is None:
            return NO_TIMESTAMP
        with self._changing:
            producer_id = next(iter(self._open.values()), None)
        entry = None if producer_id is None else self.producers.get(producer_id)
        return NO_TIMESTAMP if entry is None else entry.last_timestamp

    def _publish(self) -> None:
        first = next(iter(self._open), None)
        marker = _NEVER
        if self._unreplicated:
            marker, ended = self._unreplicated[0]
            first = ended if first is None else min(first, ended)
        self._undecided = (first, marker)


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != entry.producer_epoch:
        expected = 0
        known = entry.producer_epoch != NO_PRODUCER_EPOCH
    else:
        last = entry.last_sequence
        expected = 0 if last == SEQUENCE_MAX else last + 1
        known = True
    if known and first != expected:
        raise KafkaError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {entry.producer_id} sent sequence {first} where {expected} follows",
        )
