"""What real clients did and saw: the history that is checked, and when each partition was served."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from history import History, Place

ACKS_ALL = -1


class Judge:
    """Owner of the violations."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


class Recorder:
    """Owner of a run's history, written down as it happens. Clients tell it from their threads."""

    def __init__(self, judge: Judge, file: Path) -> None:
        self.judge = judge
        self.history = History(judge)
        self._lock = threading.Lock()
        self._file = file.open("w")
        self.acknowledged_at: defaultdict[Place, list[float]] = defaultdict(list)
        self.read_at: dict[Place, float] = {}
        self.committed_at: dict[Place, float] = {}
        self.committed: dict[Place, int] = {}
        """The highest that was acknowledged; each topic has one group."""
        self.errors: defaultdict[str, int] = defaultdict(int)
        """What clients were told and went on after: how often."""
        self.copied_at: dict[Place, float] = {}
        """When a transaction with records of the place was committed last."""
        self.copies: defaultdict[Place, dict[int, bytes]] = defaultdict(dict)
        """What a reader of committed records was given, by offset."""
        self._copy_of: dict[bytes, tuple[Place, int]] = {}
        self.high_watermarks_seen = self.commits_seen = 0
        self._latest_offsets: defaultdict[Place, dict[int, int]] = defaultdict(dict)

    def on_acknowledged(self, place: Place, offset: int, value: bytes) -> None:
        producer = value.partition(b":")[0].decode()
        with self._lock:
            self._write("acknowledged", place, offset, value)
            self.acknowledged_at[place].append(time.monotonic())
            self.history.on_sent(producer, 1)
            self.history.on_acknowledged(place, offset, [value], producer, ACKS_ALL)

    def on_read(self, place: Place, offset: int, value: bytes, consumer: str) -> None:
        with self._lock:
            self._write("read", place, offset, value)
            self.read_at[place] = time.monotonic()
            self.history.on_read(place, offset, value, consumer)

    def on_committed(self, place: Place, offset: int, known: int) -> None:
        """A commit was acknowledged; `known` was the highest before it was sent."""
        with self._lock:
            self._write("committed", place, offset, b"")
            self.committed_at[place] = time.monotonic()
            if offset < known:
                self.judge.violate(
                    f"WENT BACK: {place}: a member commits {offset}, and {known} was committed before"
                )
            self.committed[place] = max(self.committed.get(place, 0), offset)

    def on_committed_offset(self, place: Place, known: int, offset: int) -> None:
        """Somebody asked for the committed offset; `known` was acknowledged before that."""
        with self._lock:
            self.commits_seen += 1
            if offset < known:
                self.judge.violate(f"WENT BACK: {place}: {offset} is committed, and {known} was before")

    def latest_offsets(self, place: Place) -> dict[int, int]:
        """By leader epoch, the highest offset that was told as the latest so far."""
        with self._lock:
            return dict(self._latest_offsets[place])

    def on_latest_offset(
        self, place: Place, known: Mapping[int, int], leader_epoch: int, offset: int
    ) -> None:
        """A leader said where its partition ends; `known` are the latest offsets before it was asked.

        Its high watermark is not before that of any leader until then (KIP-207). A former one that has not been told
        yet, as it was frozen or cut off, does not know what a later one has: so it is in Kafka, too.
        """
        with self._lock:
            self.high_watermarks_seen += 1
            self._write("latest", place, offset, f"epoch {leader_epoch}".encode())
            before = max((each for epoch, each in known.items() if epoch <= leader_epoch), default=0)
            if offset < before:
                self.judge.violate(
                    f"WENT BACK: the latest offset of {place} is {offset} in epoch {leader_epoch}, and was {before}"
                )
            latest = self._latest_offsets[place]
            latest[leader_epoch] = max(latest.get(leader_epoch, 0), offset)

    def on_copied(self, place: Place) -> None:
        """A transaction with records of `place` and their offsets was committed."""
        with self._lock:
            self._write("copied", place, -1, b"")
            self.copied_at[place] = time.monotonic()

    def on_copy_read(self, place: Place, offset: int, value: bytes) -> None:
        """A reader of committed records was given it. Each record of the producers is copied once."""
        with self._lock:
            self._write("copy", place, offset, value)
            self.copies[place][offset] = value
            first = self._copy_of.setdefault(value, (place, offset))
            if first != (place, offset):
                self.judge.violate(
                    f"COPIED TWICE: {value[:40]!r} is at {first[0]}:{first[1]} and at {place}:{offset}"
                )

    def uncopied(self) -> int:
        """How many acknowledged records have no committed copy that was read."""
        with self._lock:
            return sum(len(values.keys() - self._copy_of.keys()) for values in self.history.landed.values())

    def on_error(self, what: str) -> None:
        """Nothing that is wrong by itself."""
        with self._lock:
            self.errors[what] += 1
            self._note(f"error: {what}")

    def on_failure(self, what: str) -> None:
        """What no client may be told."""
        with self._lock:
            self._note(f"failure: {what}")
            self.judge.violate(f"FAILED: {what}")

    def note(self, what: str) -> None:
        """A line between the others, such as a fault."""
        with self._lock:
            self._note(what)

    def _note(self, what: str) -> None:
        self._file.write(json.dumps([round(time.monotonic(), 4), what]) + "\n")
        self._file.flush()

    def unread(self) -> int:
        """How many acknowledged records no consumer has read."""
        with self._lock:
            return sum(
                len(promised.keys() - self.history.read.get(place, {}).keys())
                for place, promised in self.history.acknowledged.items()
            )

    def close(self) -> None:
        self._file.close()

    def _write(self, what: str, place: Place, offset: int, value: bytes) -> None:
        row = [round(time.monotonic(), 4), what, str(place), offset, value.decode().rstrip("x")]
        self._file.write(json.dumps(row) + "\n")
