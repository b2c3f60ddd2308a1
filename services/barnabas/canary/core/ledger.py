"""What was sent, what was acknowledged, what came back: the judgement on every record, as plain data.

A record is judged three times. *Produce*: acknowledged in time or not. *Fetch*, once for each gateway: read through it
in time after the acknowledgement or not. *Durability*: an acknowledged record that no gateway has given back after a
longer time is lost. A produce that was not acknowledged may have been written all the same; that breaks no promise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from barnabas.canary import limits


class RecordId(NamedTuple):
    """Which record: the gateway that it was sent through and its number among those. Numbers only grow."""

    gateway: str
    sequence: int


class Verdicts(Protocol):
    """Who hears of what the ledger finds. Times are seconds."""

    def produced(self, gateway: str, seconds: float) -> None:
        """Acknowledged after so long."""

    def produce_failed(self, gateway: str) -> None:
        """Refused, or not acknowledged in time."""

    def fetched(self, reader: str, end_to_end_seconds: float) -> None:
        """Read through the gateway `reader`, in time; so long after it was sent."""

    def fetch_failed(self, reader: str) -> None:
        """Acknowledged, and not read through `reader` in time."""

    def lost(self) -> None:
        """Acknowledged, and not readable."""

    def recovered(self) -> None:
        """Counted as lost, and readable after all."""

    def duplicated(self, reader: str) -> None:
        """Read twice through `reader`, at two offsets."""

    def reordered(self, reader: str) -> None:
        """Read after a record of the same sender and partition that was sent later."""


@dataclass(slots=True)
class _Pending:
    partition: int
    sent_at: float
    acknowledged_at: float | None = None
    is_failed: bool = False
    is_read: bool = False
    is_lost: bool = False
    read_early: dict[str, float] = field(default_factory=dict)
    """When which reader had it, before the acknowledgement was seen."""
    awaited_by: set[str] = field(default_factory=set)
    """The gateways through which it has not been read yet, while there is time."""


class Overdue(NamedTuple):
    """An acknowledged record that nobody could read in time: it is lost if its partition answers."""

    record: RecordId
    partition: int


class Ledger:
    """Owns the records under way. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, verdicts: Verdicts, *, timeout_seconds: float, loss_seconds: float) -> None:
        self._verdicts = verdicts
        self._timeout = timeout_seconds
        self._loss = loss_seconds
        self._pending: dict[RecordId, _Pending] = {}
        self._readers: set[str] = set()
        self._seen: dict[tuple[str, str, int], deque[int]] = {}
        self._next_offsets: dict[tuple[str, int], int] = {}
        self.newest_read: dict[str, float] = {}
        """When the newest record that was read through each gateway had been sent; at first, when reading began."""

    @property
    def unread(self) -> int:
        """Acknowledged records that no gateway has given back."""
        return sum(
            each.acknowledged_at is not None and not each.is_read and not each.is_lost
            for each in self._pending.values()
        )

    @property
    def is_full(self) -> bool:
        return len(self._pending) >= limits.PENDING_RECORDS_MAX

    def add_reader(self, reader: str, now: float) -> None:
        """From now on records must be readable through this gateway."""
        self._readers.add(reader)
        self.newest_read[reader] = now

    def remove_reader(self, reader: str) -> None:
        """The gateway is no longer one of ours: nothing is expected of it."""
        self._readers.discard(reader)
        self.newest_read.pop(reader, None)
        for pending in self._pending.values():
            pending.awaited_by.discard(reader)
        for seen in [key for key in self._seen if key[0] == reader]:
            del self._seen[seen]
        for position in [key for key in self._next_offsets if key[0] == reader]:
            del self._next_offsets[position]

    def forget(self) -> None:
        """Drop all records under way without judgement: the topic that they were in was deleted."""
        self._pending.clear()
        self._seen.clear()
        self._next_offsets.clear()

    def on_sent(self, record: RecordId, partition: int, now: float) -> None:
        self._pending[record] = _Pending(partition, now, awaited_by=set(self._readers))

    def on_acknowledged(self, record: RecordId, now: float) -> None:
        """One acknowledged after its time was over is a failed produce already, and must be readable all the same."""
        pending = self._pending.get(record)
        if pending is None:
            return
        pending.acknowledged_at = now
        if not pending.is_failed:
            self._verdicts.produced(record.gateway, now - pending.sent_at)
        for reader, read_at in pending.read_early.items():
            if reader in pending.awaited_by:
                self._fetched(pending, reader, read_at)
        self._forget_if_done(record, pending)

    def on_failed(self, record: RecordId) -> None:
        """Refused, or given up: whether it was written nobody knows."""
        pending = self._pending.pop(record, None)
        if pending is not None and not pending.is_failed:
            self._verdicts.produce_failed(record.gateway)

    def on_read(self, reader: str, record: RecordId, partition: int, offset: int, now: float) -> None:
        """`reader` gave this record; again for the same offset is no news (a consumer may start over)."""
        if reader not in self._readers or offset < self._next_offsets.get((reader, partition), 0):
            return
        self._next_offsets[reader, partition] = offset + 1
        self._check_order(reader, record, partition)
        pending = self._pending.get(record)
        if pending is None:
            return
        self.newest_read[reader] = max(self.newest_read[reader], pending.sent_at)
        if pending.acknowledged_at is None:
            pending.read_early.setdefault(reader, now)
            return
        if pending.is_lost:
            self._verdicts.recovered()
            pending.is_lost = False
        if reader in pending.awaited_by:
            self._fetched(pending, reader, now)
        pending.is_read = True
        self._forget_if_done(record, pending)

    def sweep(self, now: float) -> list[Overdue]:
        """Judge what ran out of time; the answer is to be followed by `judge_overdue` where that is possible."""
        overdue = []
        for record, pending in list(self._pending.items()):
            if pending.acknowledged_at is None:
                if not pending.is_failed and now - pending.sent_at > self._timeout:
                    pending.is_failed = True
                    self._verdicts.produce_failed(record.gateway)
                continue
            age = now - pending.acknowledged_at
            if age > self._timeout and pending.awaited_by:
                for reader in sorted(pending.awaited_by):
                    self._verdicts.fetch_failed(reader)
                pending.awaited_by.clear()
                self._forget_if_done(record, pending)
            if age > self._loss and not pending.is_read and not pending.is_lost:
                overdue.append(Overdue(record, pending.partition))
            if pending.is_lost and age > 2 * self._loss:
                del self._pending[record]
        return overdue

    def judge_overdue(self, overdue: Iterable[Overdue], answering: set[int]) -> list[Overdue]:
        """Count those as lost whose partition is `answering` readers; the others may still be there. Returns them."""
        lost = []
        for each in overdue:
            pending = self._pending.get(each.record)
            if each.partition in answering and pending is not None and not pending.is_read:
                pending.is_lost = True
                self._verdicts.lost()
                lost.append(each)
        return lost

    def _fetched(self, pending: _Pending, reader: str, read_at: float) -> None:
        pending.awaited_by.discard(reader)
        pending.is_read = True
        self._verdicts.fetched(reader, read_at - pending.sent_at)

    def _forget_if_done(self, record: RecordId, pending: _Pending) -> None:
        if pending.is_read and not pending.awaited_by:
            self._pending.pop(record, None)

    def _check_order(self, reader: str, record: RecordId, partition: int) -> None:
        key = (reader, record.gateway, partition)
        seen = self._seen.setdefault(key, deque(maxlen=limits.REMEMBERED_SEQUENCES_MAX))
        if record.sequence in seen:
            self._verdicts.duplicated(reader)
        elif seen and record.sequence < seen[-1]:
            self._verdicts.reordered(reader)
            return  # the newest stays last
        else:
            seen.append(record.sequence)
