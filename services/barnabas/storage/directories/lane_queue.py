"""What one partition has in the writer thread of its log directory, from being handed over to being delivered."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kernel.errors import KafkaError
from barnabas.storage.directories.directory_lane import DirectoryLane, Done, LaneItem

OnWithdrawn = Callable[[KafkaError], None]
"""Told why an append was taken back before it began."""


class LaneQueue:
    """Owner of one partition's items in `lane`. While there are any, all that follow have to go there too."""

    __slots__ = ("_lane", "items")

    def __init__(self, lane: DirectoryLane) -> None:
        self._lane = lane
        self.items: dict[LaneItem, OnWithdrawn | None] = {}
        """What is there, in order, with whom to tell; every append asks whether there is any."""

    def submit(
        self,
        work: Callable[[], object],
        on_done: Done,
        size_bytes: int = 0,
        on_withdrawn: OnWithdrawn | None = None,
    ) -> LaneItem:
        """As `DirectoryLane.submit`; what comes without `on_withdrawn` cannot be taken back."""

        def leave(result: object, error: BaseException | None) -> None:
            del self.items[item]
            on_done(result, error)

        item = self._lane.submit(work, leave, size_bytes)
        self.items[item] = on_withdrawn
        return item

    def withdraw(self, item: LaneItem) -> bool:
        """Take back what has not begun: it never runs, and nobody is told. False when it has begun."""
        if not self._lane.withdraw(item):
            return False
        del self.items[item]
        return True

    def withdraw_all(self, reason: KafkaError) -> None:
        """Take back all that has not begun and can be, and tell each of them why.

        The last one first: else the writer thread might begin one whose forerunner is gone.
        """
        items = reversed(list(self.items.items()))
        withdrawn = [told for item, told in items if told is not None and self.withdraw(item)]
        for on_withdrawn in reversed(withdrawn):
            on_withdrawn(reason)
