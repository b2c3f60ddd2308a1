"""What producers are to send again before anything later of theirs is written to a log that does not know them.

An idempotent producer sends ahead: behind a batch that the disk refuses, that is too large, or that waited too long
and was taken back, others are under way already. A log that knows the producer refuses those by their sequences. One
that has nothing of it takes any first sequence (KIP-360), and so would take the later batch as the producer's first;
the earlier one, sent again, would then be out of order, which a client takes for a sign that it had been written
before: it is lost, and reported as delivered. So what was refused is remembered until the
producer's next batch is in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.kernel.errors import SENT_AGAIN, ErrorCode, KafkaError
from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, parse_header

REFUSED_PRODUCERS_MAX: Final = 5_000
"""Producers of one partition that are remembered; beyond that the one remembered first is forgotten."""


_SENT_AGAIN: Final = SENT_AGAIN | {ErrorCode.corrupt_message, ErrorCode.message_too_large}
"""After these clients send the records again under the same sequences: those that do not say what is wrong with the
batch, and of what the log finds in it a wrong CRC and that it is too large: Java's client then sends it in parts.
"""


class _Refused(NamedTuple):
    producer_epoch: int
    sequence: int
    """The lowest that was refused."""
    at: float


class RefusedSequences:
    """Owns, for one partition, the lowest refused sequence of each producer. For every thread: nothing waits."""

    def __init__(self, now: Callable[[], float], *, producers_max: int = REFUSED_PRODUCERS_MAX) -> None:
        """`now` in seconds: the clock's monotonic time, since a setting says when they are forgotten."""
        self._now = now
        self._producers_max = producers_max
        self._refused: dict[int, _Refused] = {}
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._refused)

    def add(self, records: Buffer) -> None:
        """A client's batch is not written, for a reason that says nothing of the batch: it will be sent again."""
        if len(records) < HEADER_SIZE:
            return
        header = parse_header(records)
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        with self._changing:
            known = self._refused.get(header.producer_id)
            new = _Refused(header.producer_epoch, header.base_sequence, self._now())
            if known is not None:
                if known.producer_epoch > new.producer_epoch:
                    return
                if known.producer_epoch == new.producer_epoch and known.sequence <= new.sequence:
                    return
            self._refused[header.producer_id] = new
            if len(self._refused) > self._producers_max:
                del self._refused[next(iter(self._refused))]

    def note(self, code: ErrorCode, records: Buffer) -> None:
        """A client's batch is refused with `code`."""
        if code in _SENT_AGAIN:
            self.add(records)

    def check(self, header: BatchHeader) -> None:
        """Whether a producer that the log does not know may begin with this batch.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER when an earlier one of the same producer epoch was refused: clients then
        send both again, in their order.
        """
        refused = self._refused.get(header.producer_id)
        if refused is None or header.producer_epoch != refused.producer_epoch:
            return
        if header.base_sequence > refused.sequence:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                f"but {refused.sequence} was refused and has to come first",
            )

    def on_written(self, producer_id: int) -> None:
        """The log knows the producer from now on, and what follows."""
        if producer_id in self._refused:
            with self._changing:
                self._refused.pop(producer_id, None)

    def expire(self, seconds: float) -> None:
        """Forget what was refused so long ago."""
        with self._changing:
            oldest = self._now() - seconds
            for producer_id in [each for each, refused in self._refused.items() if refused.at <= oldest]:
                del self._refused[producer_id]
