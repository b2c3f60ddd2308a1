"""What one partition has in the writer thread, what waits before it for a check, and how it is taken back."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.threads import InlineThreads
from barnabas.storage.directories.directory_lane import DirectoryLane, LaneItem
from barnabas.storage.directories.lane_queue import LaneQueue
from barnabas.storage.directories.record_checks import RecordChecks


class ManualChecks(RecordChecks):
    """Checks that run when they are told to."""

    def __init__(self, bytes_max: int = 1_000) -> None:
        super().__init__(InlineThreads(), bytes_max=bytes_max)
        self.waiting: list[tuple[Callable[[], object], Callable[[Future[Any]], None], Future[Any]]] = []

    def submit(self, check: Callable[[], object], on_checked: Callable[[Future[Any]], None]) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((check, on_checked, future))
        return future

    def run_one(self) -> None:
        check, on_checked, future = self.waiting.pop(0)
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(check())
            except KafkaError as error:
                future.set_exception(error)
        on_checked(future)


class BusyLane:
    """A lane whose writer thread begins the first that waits whenever one was taken back."""

    def __init__(self, bytes_max: int = 1_000) -> None:
        self.path = "/d"
        self.checks = ManualChecks()
        self.waiting: list[LaneItem] = []
        self.begun: list[LaneItem] = []
        self.bytes_max = bytes_max

    def put(self, item: LaneItem) -> None:
        if (
            item.size_bytes
            and sum(each.size_bytes for each in self.waiting) + item.size_bytes > self.bytes_max
        ):
            raise KafkaError(ErrorCode.kafka_storage_error)
        self.waiting.append(item)

    def withdraw(self, item: LaneItem) -> bool:
        if item not in self.waiting:
            return False
        self.waiting.remove(item)
        if self.waiting:
            self.begun.append(self.waiting.pop(0))
        return True


def passes() -> None:
    pass


def refuses() -> None:
    raise KafkaError(ErrorCode.invalid_record)


class Queued:
    """One partition's queue, and what became of the items in it."""

    def __init__(self, *, bytes_max: int = 1_000) -> None:
        self.lane = BusyLane(bytes_max)
        self.checks = self.lane.checks
        self.queue = LaneQueue(cast(DirectoryLane, self.lane))
        self.items: list[LaneItem] = []
        self.withdrawn: list[int] = []
        self.refused: list[int] = []

    def submit(self, check: Callable[[], None] | None = None, size_bytes: int = 1) -> LaneItem:
        number = len(self.items)
        item = self.queue.submit(
            lambda: None,
            lambda _, error: self.refused.append(number) if error is not None else None,
            size_bytes,
            lambda _: self.withdrawn.append(number),
            check=check,
        )
        self.items.append(item)
        return item

    def numbers(self, items: list[LaneItem]) -> list[int]:
        return [self.items.index(item) for item in items]


@pytest.fixture
def queued() -> Queued:
    return Queued()


def test_nothing_begins_whose_forerunner_was_taken_back(queued: Queued) -> None:
    for _ in range(6):
        queued.submit()
    queued.queue.withdraw_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert queued.numbers(queued.lane.begun) == [0, 1, 2], "those sent first, without a gap"
    assert queued.withdrawn == [3, 4, 5], "they hear of it in the order in which they were sent"
    assert list(queued.queue.items) == queued.items[:3]


def test_what_nobody_is_told_of_cannot_be_taken_back(queued: Queued) -> None:
    kept = queued.queue.submit(lambda: None, lambda *_: None)
    queued.queue.withdraw_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert queued.lane.waiting == [kept]


def test_what_is_behind_a_check_waits_for_it(queued: Queued) -> None:
    for check in (None, passes, None, None, passes, None):
        queued.submit(check)
    assert queued.numbers(queued.lane.waiting) == [0]
    assert len(queued.checks.waiting) == 1, "one of a partition at a time"
    queued.checks.run_one()
    assert queued.numbers(queued.lane.waiting) == [0, 1, 2, 3]
    queued.checks.run_one()
    assert queued.numbers(queued.lane.waiting) == [0, 1, 2, 3, 4, 5]
    assert queued.checks.waiting_bytes == 0


def test_what_a_check_refuses_does_not_come_to_the_writer_thread(queued: Queued) -> None:
    for check in (refuses, None):
        queued.submit(check)
    queued.checks.run_one()
    assert queued.refused == [0]
    assert queued.numbers(queued.lane.waiting) == [1]
    assert list(queued.queue.items) == queued.items[1:]


@pytest.mark.parametrize("has_begun", [False, True])
def test_what_is_being_checked_can_be_taken_back(queued: Queued, has_begun: bool) -> None:
    for check in (passes, None, passes, None):
        queued.submit(check)
    if has_begun:
        queued.checks.waiting[0][2].set_running_or_notify_cancel()
    assert queued.queue.withdraw(queued.items[0])
    assert queued.numbers(queued.lane.waiting) == [1]
    check, on_checked, future = queued.checks.waiting.pop(0)
    if has_begun:
        future.set_result(check())
    else:
        assert future.cancelled()
    on_checked(future)
    assert queued.numbers(queued.lane.waiting) == [1], "the check of another says nothing of this one"
    queued.checks.run_one()
    assert queued.numbers(queued.lane.waiting) == [1, 2, 3]


def test_what_waits_behind_a_check_can_be_taken_back(queued: Queued) -> None:
    for check in (passes, None, passes, None):
        queued.submit(check)
    for number in (2, 1):
        assert queued.queue.is_held(queued.items[number])
        assert queued.queue.withdraw(queued.items[number])
    queued.checks.run_one()
    assert queued.numbers(queued.lane.waiting) == [0, 3]
    assert not queued.queue.is_held(queued.items[3])
    assert queued.checks.waiting_bytes == 0


def test_all_that_waits_before_the_writer_thread_is_taken_back_at_once(queued: Queued) -> None:
    for check in (passes, None, passes):
        queued.submit(check)
    change = queued.queue.submit(lambda: None, lambda *_: None)
    queued.queue.withdraw_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert queued.withdrawn == [0, 1, 2]
    assert queued.lane.waiting == [change]
    assert list(queued.queue.items) == [change]


def test_too_much_that_waits_for_checks_is_refused_before_anything_changes(queued: Queued) -> None:
    queued.submit(passes, 500)
    with pytest.raises(KafkaError):
        queued.submit(None, 1)
    assert list(queued.queue.items) == queued.items
    assert queued.checks.waiting_bytes == 500


def test_a_lane_that_is_full_when_the_check_is_over_takes_it_back() -> None:
    queued = Queued(bytes_max=100)
    for check, size_bytes in ((None, 90), (passes, 20), (None, 20), (None, 5)):
        queued.submit(check, size_bytes)
    queued.checks.run_one()
    assert queued.withdrawn == [1, 2]
    assert queued.numbers(queued.lane.waiting) == [0, 3]
    assert queued.checks.waiting_bytes == 0


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_the_order_is_kept_and_nothing_is_forgotten(seed: int) -> None:
    choose = random.Random(seed)
    queued = Queued(bytes_max=60)
    lane, queue = queued.lane, queued.queue
    taken_back: list[int] = []
    ran: list[LaneItem] = []
    for _ in range(300):
        step = choose.randrange(6)
        if step < 3:
            queued.submit(choose.choice((None, None, passes, refuses)), choose.randrange(3))
        elif step == 3 and queued.checks.waiting:
            queued.checks.run_one()
        elif step == 4 and lane.waiting:
            ran.append(lane.waiting.pop(0))
            ran[-1].on_done(None, None)
        elif step == 5 and queue.items:
            item = choose.choice(list(queue.items))
            begun = len(lane.begun)
            assert queue.withdraw(item)
            taken_back.append(queued.items.index(item))
            for item in lane.begun[begun:]:
                ran.append(item)
                item.on_done(None, None)
    while queued.checks.waiting:
        queued.checks.run_one()
    for item in lane.waiting:
        ran.append(item)
        item.on_done(None, None)
    numbers = queued.numbers(ran)
    assert numbers == sorted(numbers)
    ended = numbers + queued.refused + queued.withdrawn + taken_back
    assert sorted(ended) == list(range(len(queued.items)))
    assert (queue.items, queued.checks.waiting_bytes) == ({}, 0)
