"""Those who wait until a log is replicated, or durable, up to some offset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

OnDecided = Callable[[int], None]
"""Called once with Kafka's error code: 0 when the offset was reached."""


class OffsetWaiters:
    """Owner of the callbacks of one partition that wait for one of its offsets, in the order of the offsets."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, OnDecided]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, on_decided: OnDecided) -> None:
        """Call `on_decided(0)` once everything before `offset` is there; offsets come in rising order."""
        waiting = self._waiting
        if waiting and waiting[-1][0] > offset:
            # A duplicate asks for an offset that was appended before: it may wait for the newer one as well.
            offset = waiting[-1][0]
        waiting.append((offset, on_decided))

    def release(self, offset: int) -> None:
        """Everything before `offset` is there."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1](0)

    def fail(self, error_code: int) -> None:
        """No offset will be reached."""
        waiting, self._waiting = self._waiting, deque()
        for _, on_decided in waiting:
            on_decided(error_code)
