"""Decisions on their way into the log of one partition, and how they are packed into appends.

Decisions leave in the order in which they were taken. Those that wait while an append is under way share the next
one, and its batches: a thousand commits that waited for a slow disk are one batch of a thousand records, not a
thousand batches of one. A decision is never torn apart over two batches, unless it is too large for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.runtime.core.producers import PLAIN, BatchHead
from barnabas.kernel.tracing import current_traceparent
from barnabas.records.record import RecordParts, encode_batch

RecordT = TypeVar("RecordT")
"""A record as the state machine knows it."""

_RECORD_OVERHEAD_BYTES: Final = 40
"""Varints of one record and its share of the batch header, generously."""


@dataclass(slots=True)
class PendingWrite(Generic[RecordT]):
    """A decision, or a part of a large one, on its way into the log, and what to say once it is there."""

    records: Sequence[RecordT]
    encoded: Sequence[RecordParts]
    size_bytes: int
    head: BatchHead = PLAIN
    """That of the batch which all of `records` are in, maybe with others."""
    replies: list[tuple[Waiter, Message]] = field(default_factory=list)
    traceparent: str = field(default_factory=current_traceparent)
    """The span of the request that was decided about."""


@dataclass(frozen=True, slots=True)
class Append:
    """Whole batches that go into the log together."""

    batches: bytes
    record_count: int
    traceparent: str
    """Of the first decision in it that is traced: one append has one span."""


class WriteQueue(Generic[RecordT]):
    """Owns the decisions of one partition that are not known to be in the log."""

    def __init__(self, head: Callable[[RecordT], BatchHead] = lambda _: PLAIN) -> None:
        """`head` says under which producer a record is written."""
        self._head = head
        self._waiting: deque[PendingWrite[RecordT]] = deque()
        self._in_flight: list[PendingWrite[RecordT]] = []
        self.under_way: Append | None = None
        """What was taken and is not known to be in the log: it is written again until it is."""
        self._waiting_bytes = 0
        self._answers_bytes = 0

    def __len__(self) -> int:
        """Decisions that wait, or are in the append under way."""
        return len(self._waiting) + len(self._in_flight)

    def __iter__(self) -> Iterator[PendingWrite[RecordT]]:
        """All of them, oldest first."""
        yield from self._in_flight
        yield from self._waiting

    @property
    def has_next(self) -> bool:
        """Whether there is something for another append."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should be decided."""
        return (
            self._waiting_bytes >= limits.BACKLOG_BYTES_MAX
            or len(self._waiting) >= limits.BACKLOG_DECISIONS_MAX
        )

    @property
    def holds_many_answers(self) -> bool:
        """Whether the answers that wait are so large that nobody more should wait."""
        return self._answers_bytes >= limits.BACKLOG_ANSWERS_BYTES_MAX

    def add(
        self,
        records: Sequence[RecordT],
        encoded: Sequence[RecordParts],
        replies: Sequence[tuple[Waiter, Message]],
    ) -> None:
        """One more decision: its records, one or more, the same ones `encoded`, and its replies."""
        start = size = 0
        head = self._head(records[0])
        for end, (record, parts) in enumerate(zip(records, encoded, strict=True)):
            record_bytes, record_head = _size_of(parts), self._head(record)
            is_full = size + record_bytes > limits.BATCH_BYTES_TARGET
            if end > start and (is_full or not _share(head, record_head)):
                self._put(PendingWrite(records[start:end], encoded[start:end], size, head))
                start, size = end, 0
            size += record_bytes
            head = record_head
        self._put(PendingWrite(records[start:], encoded[start:], size, head))
        self.reply_after_all(replies)

    def _put(self, write: PendingWrite[RecordT]) -> None:
        self._waiting.append(write)
        self._waiting_bytes += write.size_bytes

    def reply_after_all(self, replies: Sequence[tuple[Waiter, Message]]) -> None:
        """Say `replies` once everything that is on its way now is in the log. There must be something."""
        last = self._waiting[-1] if self._waiting else self._in_flight[-1]
        last.replies.extend(replies)
        self._answers_bytes += _size_of_answers(replies)

    def take_waiters(self) -> list[Waiter]:
        """Whoever waits for what is on its way; it goes on without them."""
        waiters = [waiter for write in self for waiter, _ in write.replies]
        for write in self:
            write.replies.clear()
        self._answers_bytes = 0
        return waiters

    def next_append(self) -> Append:
        """The next that goes into the log, `under_way` until `on_written` or `clear`; only then there is another."""
        assert self._waiting, "there is a decision that waits"
        assert not self._in_flight, "one append at a time: the next one's place is known when this one landed"
        batches: list[_Batch] = []
        size = 0
        while self._waiting:
            write = self._waiting[0]
            if batches and size + write.size_bytes > limits.APPEND_BYTES_TARGET:
                break
            if not batches or not batches[-1].has_room_for(write):
                if len(batches) == limits.APPEND_BATCHES_MAX:
                    break
                batches.append(_Batch(write.head))
            batches[-1].add(write)
            size += write.size_bytes
            self._waiting_bytes -= write.size_bytes
            self._in_flight.append(self._waiting.popleft())
        self.under_way = Append(
            batches=b"".join(batch.encode() for batch in batches),
            record_count=sum(len(batch.records) for batch in batches),
            traceparent=next((each.traceparent for each in self._in_flight if each.traceparent), ""),
        )
        return self.under_way

    def on_written(self) -> list[PendingWrite[RecordT]]:
        """The append under way is in the log: its decisions, in order."""
        written, self._in_flight, self.under_way = self._in_flight, [], None
        self._answers_bytes -= sum(_size_of_answers(each.replies) for each in written)
        assert self._answers_bytes >= 0, "each answer counts once"
        return written

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._in_flight, self.under_way = [], None
        self._waiting_bytes = self._answers_bytes = 0


@dataclass(slots=True)
class _Batch:
    """A batch of the next append."""

    head: BatchHead
    records: list[RecordParts] = field(default_factory=list)
    size_bytes: int = 0

    def has_room_for(self, write: PendingWrite[RecordT]) -> bool:
        fits = self.size_bytes + write.size_bytes <= limits.BATCH_BYTES_TARGET
        return fits and _share(self.head, write.head)

    def add(self, write: PendingWrite[RecordT]) -> None:
        self.records.extend(write.encoded)
        self.size_bytes += write.size_bytes

    def encode(self) -> bytes:
        producer = self.head.producer
        if producer is None:
            return encode_batch(self.records)
        # Without a sequence, as Kafka's: the log's end that the append expects keeps it from landing twice.
        return encode_batch(
            self.records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
            control=self.head.is_control,
        )


def _share(head: BatchHead, other: BatchHead) -> bool:
    """Whether records of these heads may be in one batch."""
    return head == other and not head.is_control


def _size_of(parts: RecordParts) -> int:
    _, key, value, _ = parts
    return len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES


def _size_of_answers(replies: Sequence[tuple[Waiter, Message]]) -> int:
    return sum(message.ByteSize() for _, message in replies)
