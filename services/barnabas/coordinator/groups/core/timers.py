"""Deadlines as data: nothing here waits, someone else asks what is due."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Collection
from typing import Final, NamedTuple

STALE_ENTRIES_MAX: Final = 100
"""How many more there may be of entries whose deadlines are cancelled or were moved than of others."""


class DeadlineKind(enum.IntEnum):
    """What happens when the time has come."""

    SESSION = 1
    """A member was silent for its session timeout."""
    JOIN = 2
    """Members had their time to join again."""
    SYNC = 3
    """Members had their time to ask for their assignment."""
    EXPIRATION = 4
    """Time to look for expired offsets."""
    CONSUMER_SESSION = 5
    """A member of a consumer group was silent for its session timeout."""
    CONSUMER_REBALANCE = 6
    """It had its time to give partitions up."""
    CONSUMER_JOIN = 7
    """It speaks the classic protocol, and had its time to join again."""
    CONSUMER_SYNC = 8
    """It speaks the classic protocol, and had its time to ask for its assignment."""
    REGEX = 9
    """The topics that match a consumer group's regular expressions are to be found."""


class Deadline(NamedTuple):
    """What a deadline is about; there is at most one time for each."""

    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """Owns the deadlines of one partition's groups. Times are monotonic milliseconds.

    A deadline that moves later, as a session does with every heartbeat, costs no heap operation: the old entry is
    put back when it comes up. Entries of cancelled deadlines, which may be weeks ahead, are taken out when
    a large heap has more of them than of others.
    """

    def __init__(self) -> None:
        self._times: dict[Deadline, int] = {}
        self._heap: list[tuple[int, Deadline]] = []
        self._queued: dict[Deadline, int] = {}

    def schedule(self, deadline: Deadline, at_ms: int) -> None:
        """Set the time of `deadline`, in place of any earlier one."""
        self._times[deadline] = at_ms
        queued = self._queued.get(deadline)
        if queued is None or at_ms < queued:
            self._push(deadline, at_ms)

    def cancel(self, deadline: Deadline) -> None:
        """Forget `deadline`, if it is there."""
        self._times.pop(deadline, None)

    def time_of(self, deadline: Deadline) -> int | None:
        """When `deadline` is due; None when it is not scheduled."""
        return self._times.get(deadline)

    def scheduled(self) -> Collection[Deadline]:
        """All that are to come."""
        return self._times.keys()

    def spare(self, now_ms: int, jumped_ms: int, left_ms_max: int) -> None:
        """The clock jumped by `jumped_ms` to `now_ms`: keep what was left to each deadline, up to `left_ms_max`.

        Nobody could do in the time of the jump what would have kept the deadline away, such as sending a heartbeat.
        Looking for expired offsets waits for nobody, and is due at once.
        """
        before_ms = now_ms - jumped_ms
        for deadline, at_ms in list(self._times.items()):
            if deadline.kind is DeadlineKind.EXPIRATION:
                self.schedule(deadline, min(at_ms, now_ms))
            else:
                left_ms = min(max(at_ms - before_ms, 0), left_ms_max)
                self._times[deadline] = max(at_ms, now_ms + left_ms)

    def pop_due(self, now_ms: int) -> Deadline | None:
        """Remove and return the earliest deadline that is due at `now_ms`; None when there is none."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, deadline = heapq.heappop(self._heap)
            if self._queued.get(deadline) != at_ms:
                continue  # moved earlier since; that entry has been handled
            del self._queued[deadline]
            due_ms = self._times.get(deadline)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._push(deadline, due_ms)
                continue
            del self._times[deadline]
            return deadline
        return None

    def next_ms(self) -> int | None:
        """A time not after the next deadline; None when nothing is scheduled.

        It may be the time of a deadline that has since been cancelled or moved later: asking then finds nothing.
        """
        return self._heap[0][0] if self._heap else None

    def _push(self, deadline: Deadline, at_ms: int) -> None:
        if len(self._heap) > STALE_ENTRIES_MAX + 2 * len(self._times):
            self._heap = [(due_ms, each) for each, due_ms in self._times.items()]
            heapq.heapify(self._heap)
            self._queued = dict(self._times)  # with this one
            return
        heapq.heappush(self._heap, (at_ms, deadline))
        self._queued[deadline] = at_ms
