"""What one partition has in the writer thread, and how it is taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.storage.directories.directory_lane import DirectoryLane, LaneItem
from barnabas.storage.directories.lane_queue import LaneQueue


class BusyLane:
    """A lane whose writer thread begins the first that waits whenever one was taken back."""

    def __init__(self) -> None:
        self.waiting: list[LaneItem] = []
        self.begun: list[LaneItem] = []

    def submit(self, work: Callable[[], object], on_done: Any, size_bytes: int = 0) -> LaneItem:
        item = LaneItem(work, on_done, size_bytes)
        self.waiting.append(item)
        return item

    def withdraw(self, item: LaneItem) -> bool:
        if item not in self.waiting:
            return False
        self.waiting.remove(item)
        if self.waiting:
            self.begun.append(self.waiting.pop(0))
        return True


def test_nothing_begins_whose_forerunner_was_taken_back() -> None:
    lane = BusyLane()
    queue = LaneQueue(cast(DirectoryLane, lane))
    told: list[int] = []
    items = [
        queue.submit(lambda: None, lambda *_: None, 1, lambda _, number=number: told.append(number))  # type: ignore[misc]
        for number in range(6)
    ]
    queue.withdraw_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert [items.index(item) for item in lane.begun] == [0, 1, 2], "those sent first, without a gap"
    assert told == [3, 4, 5], "they hear of it in the order in which they were sent"
    assert list(queue.items) == items[:3]


def test_what_nobody_is_told_of_cannot_be_taken_back() -> None:
    lane = BusyLane()
    queue = LaneQueue(cast(DirectoryLane, lane))
    kept = queue.submit(lambda: None, lambda *_: None)
    queue.withdraw_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert lane.waiting == [kept]
