"""What clients of a cluster did and saw, a simulated one or a real one: what is held against the logs in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

TOPIC: Final = "events"


class Judge(Protocol):
    """Who is told of what must not be."""

    def violate(self, what: str) -> None:
        """A broken promise, in words."""


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Promise(NamedTuple):
    """What an acknowledged record was told, and by whom it was sent."""

    value: bytes
    producer: str
    acks: int


class Deletion(NamedTuple):
    """That the records before `offset` are deleted was acknowledged, and holds while that is true."""

    offset: int
    holds: Callable[[], bool]


class History:
    """Owner of what was sent, acknowledged and read. Values of records are unlike one another."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.acknowledged: dict[Place, dict[int, Promise]] = {}
        """By offset; where the offset was not told, nothing is here, and the value is in `landed`."""
        self.landed: dict[Place, dict[bytes, str]] = {}
        """Acknowledged values (acks=all), and their producers."""
        self.read: dict[Place, dict[int, bytes]] = {}
        self.high_watermarks: dict[Place, int] = {}
        """The highest that a consumer was told."""
        self._by_epoch: dict[tuple[Place, int], int] = {}
        self.deleted: dict[Place, Deletion] = {}
        """The furthest that was acknowledged."""
        self._delete_asked: dict[Place, int] = {}
        self.rotten: set[Place] = set()
        """Where a replica had a record that nobody could read."""
        self.senders: set[str] = set()
        self.sent = 0
        self.acks = 0

    def on_sent(self, producer: str, count: int) -> None:
        self.senders.add(producer)
        self.sent += count

    def on_acknowledged(
        self, place: Place, offset: int, values: list[bytes], producer: str, acks: int
    ) -> None:
        self.acks += len(values)
        promises = self.acknowledged.setdefault(place, {})
        for number, value in enumerate(values):
            if acks != 1:
                self.landed.setdefault(place, {})[value] = producer
            if offset < 0:
                continue
            known = promises.get(offset + number)
            if known is not None and known.value != value and acks != 1 and known.acks != 1:
                self._judge.violate(
                    f"{place}: offset {offset + number} was acknowledged to {known.producer} for {known.value!r} and "
                    f"to {producer} for {value!r}"
                )
            if known is None or known.acks == 1:
                promises[offset + number] = Promise(value, producer, acks)

    def promised(self, place: Place, *, is_one_enough: bool) -> dict[int, Promise]:
        """What is to be there: acks=1 promises that only where the leader is the only replica, and stays it."""
        known = self.acknowledged.get(place, {})
        return {offset: each for offset, each in known.items() if each.acks != 1 or is_one_enough}

    def on_read(self, place: Place, offset: int, value: bytes, consumer: str) -> None:
        known = self.read.setdefault(place, {}).setdefault(offset, value)
        if known != value:
            self._judge.violate(
                f"{place}: {consumer} read {value!r} at offset {offset}, where {known!r} was read"
            )

    def high_watermark_in(self, place: Place, leader_epoch: int) -> int:
        """The highest that was told in that epoch."""
        return self._by_epoch.get((place, leader_epoch), 0)

    def on_high_watermark(
        self, place: Place, leader_epoch: int, known: int, offset: int, consumer: str
    ) -> None:
        """With what a fetch was answered; `known` was the highest in the epoch before it was sent. A new leader may not
        know yet how far the one before it was.
        """
        if offset < known:
            self._judge.violate(
                f"{place}: {consumer} was told the high watermark {offset} in epoch {leader_epoch}, which was {known} "
                "before"
            )
        self._by_epoch[place, leader_epoch] = max(self.high_watermark_in(place, leader_epoch), offset)
        self.high_watermarks[place] = max(self.high_watermarks.get(place, 0), offset)

    # -- records that are deleted -------------------------------------------------------------------------------

    def on_delete(self, place: Place, offset: int) -> None:
        """Somebody asks for the records before `offset` to be deleted."""
        self._delete_asked[place] = max(self._delete_asked.get(place, 0), offset)

    def on_deleted(self, place: Place, offset: int, holds: Callable[[], bool]) -> None:
        """They are; nobody shows them any more while it `holds`."""
        known = self.deleted.get(place)
        if known is None or known.offset <= offset or not known.holds():
            self.deleted[place] = Deletion(offset, holds)

    def first_possible(self, place: Place) -> int:
        """No log begins before it."""
        known = self.deleted.get(place)
        return known.offset if known is not None and known.holds() else 0

    def may_be_deleted(self, place: Place) -> int:
        """No log begins behind it."""
        return self._delete_asked.get(place, 0)

    def on_log_start(self, place: Place, known: int, offset: int, consumer: str) -> None:
        """With what a fetch was answered; `known` was the first possible one before it was sent."""
        if known and offset < min(known, self.first_possible(place)):
            self._judge.violate(
                f"{place}: {consumer} was told that the log begins at {offset}, and {known} was before"
            )

    def on_rotten(self, place: Place) -> None:
        self.rotten.add(place)

    def on_latest_offset(self, place: Place, known: int, offset: int, consumer: str) -> None:
        """With what ListOffsets was answered; `known` was the high watermark before it was asked (KIP-207)."""
        if offset < known:
            self._judge.violate(
                f"{place}: {consumer} was told the latest offset {offset}, and {known} before"
            )
        self.high_watermarks[place] = max(self.high_watermarks.get(place, 0), offset)
