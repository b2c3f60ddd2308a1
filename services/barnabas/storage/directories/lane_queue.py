"""What one partition has in the writer thread of its log directory, from being handed over to being delivered."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from barnabas.kernel.errors import KafkaError
from barnabas.storage.directories.directory_lane import DirectoryLane, Done, LaneItem

Check = Callable[[], object]
"""What has to be found out about an item before it may go to the writer thread; raises KafkaError to refuse it."""

OnWithdrawn = Callable[[KafkaError], None]
"""Told why an append was taken back before it began."""


class _Hold:
    """Owner of whether the one who holds a queue was told that nothing is under way any more."""

    __slots__ = ("is_told", "item", "on_held")

    def __init__(self, item: LaneItem, on_held: Callable[[], None]) -> None:
        self.item = item
        """Stands in the queue where what is held back begins."""
        self.on_held = on_held
        self.is_told = False


class LaneQueue:
    """Owner of one partition's items in `lane`. While there are any, all that follow have to go there too.

    An item that has to be checked is so before it goes to the writer thread, which others need, and all behind it are
    held back meanwhile. So is all that comes while the queue is `hold`: it may `go_on` in another lane.
    """

    __slots__ = ("_checking", "_checks", "_held", "_held_bytes", "_hold", "_lane", "items")

    def __init__(self, lane: DirectoryLane) -> None:
        self._lane = lane
        self._checks = lane.checks
        self.items: dict[LaneItem, OnWithdrawn | None] = {}
        """What is there, in order, with whom to tell; every append asks whether there is any."""
        self._held: dict[LaneItem, Check | None] = {}
        """Those at the end that are not in the writer thread yet: the first is being checked."""
        self._held_bytes = 0
        self._checking: Future[Any] | None = None
        self._hold: _Hold | None = None

    def submit(
        self,
        work: Callable[[], object],
        on_done: Done,
        size_bytes: int = 0,
        on_withdrawn: OnWithdrawn | None = None,
        *,
        check: Check | None = None,
    ) -> LaneItem:
        """As `DirectoryLane.submit`, once `check` lets it pass; what comes without `on_withdrawn` cannot be taken back.

        What has to wait for a check, and has bytes, can be refused when its turn comes: it is taken back then.
        """

        def leave(result: object, error: BaseException | None) -> None:
            del self.items[item]
            on_done(result, error)
            self._look_at_hold()

        item = LaneItem(work, leave, size_bytes)
        if check is None and not self._held:
            self._lane.put(item)
            self.items[item] = on_withdrawn
            return item
        self._checks.reserve(size_bytes, self._held_bytes)
        self._held_bytes += size_bytes
        self._held[item] = check
        self.items[item] = on_withdrawn
        if len(self._held) == 1:
            self._go_on()
        return item

    # -- nothing in the writer thread --------------------------------------------------------------------------

    def hold(self, on_held: Callable[[], None]) -> None:
        """Hold back all that comes from now on; `on_held` is called once nothing from before is under way."""
        assert self._hold is None, "it is held by one at a time"
        hold = self._hold = _Hold(LaneItem(_nothing, lambda *_: None, 0), on_held)
        self.items[hold.item] = None  # so that nobody finds the queue empty
        self._held[hold.item] = None
        self._look_at_hold()

    def go_on(self, lane: DirectoryLane) -> None:
        """What was held back goes its way, which is that of `lane` from now on."""
        hold, self._hold, self._lane = self._hold, None, lane
        assert hold is not None, "it was held"
        is_first = next(iter(self._held)) is hold.item
        del self._held[hold.item], self.items[hold.item]
        if is_first:
            self._go_on()

    def _look_at_hold(self) -> None:
        hold = self._hold
        if hold is None or hold.is_told or next(iter(self.items)) is not hold.item:
            return
        hold.is_told = True
        hold.on_held()

    # -- before the writer thread -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Hand over what waits for no check, up to the next that does, and begin with that."""
        self._checking = None
        while self._held:
            item, check = next(iter(self._held.items()))
            if self._hold is not None and item is self._hold.item:
                return
            if check is not None:
                self._checking = self._checks.submit(check, self._on_checked)
                return
            self._release(item)
            self._put(item)

    def _on_checked(self, future: Future[Any]) -> None:
        if future is not self._checking:
            return  # it was taken back meanwhile
        item = next(iter(self._held))
        self._release(item)
        error = future.exception()
        if error is None:
            self._put(item)
        self._go_on()
        if error is not None:
            item.on_done(None, error)

    def _put(self, item: LaneItem) -> None:
        try:
            self._lane.put(item)
        except KafkaError as refused:
            on_withdrawn = self.items.pop(item)
            assert on_withdrawn is not None, "what cannot be taken back has no bytes, and is always taken"
            on_withdrawn(refused)
            self._look_at_hold()

    def _release(self, item: LaneItem) -> None:
        del self._held[item]
        self._held_bytes -= item.size_bytes
        self._checks.release(item.size_bytes)

    def is_held(self, item: LaneItem) -> bool:
        """Whether it waits for a look at its records, or at those of one before it."""
        return item in self._held

    # -- taking back --------------------------------------------------------------------------------------------

    def withdraw(self, item: LaneItem) -> bool:
        """Take back what has not begun: it never runs, and nobody is told. False when it has begun."""
        if item in self._held:
            self._withdraw_held(item)
        elif not self._lane.withdraw(item):
            return False
        del self.items[item]
        self._look_at_hold()
        return True

    def _withdraw_held(self, item: LaneItem) -> None:
        is_first = item is next(iter(self._held))
        self._release(item)
        if is_first:
            checking, self._checking = self._checking, None
            if checking is not None:
                checking.cancel()  # if it has begun it goes on, for nothing
            self._go_on()

    def withdraw_all(self, reason: KafkaError) -> None:
        """Take back all that has not begun and can be, and tell each of them why.

        The last one first: else the writer thread might begin one whose forerunner is gone.
        """
        items = reversed(list(self.items.items()))
        withdrawn = [told for item, told in items if told is not None and self.withdraw(item)]
        for on_withdrawn in reversed(withdrawn):
            on_withdrawn(reason)


def _nothing() -> None:
    pass
