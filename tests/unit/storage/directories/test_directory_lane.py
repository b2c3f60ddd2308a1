"""Where a log directory's appends run, and what of them may be taken back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.threads import SystemThreads
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane, LaneItem
from barnabas.storage.directories.record_checks import RecordChecks


class Now:
    """A clock that moves when it is told."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Now:
    return Now()


def make_lane(now: Now, *, is_alone: bool) -> DirectoryLane:
    threads = SystemThreads()
    return DirectoryLane(
        "/d", threads, checks=RecordChecks(threads), is_alone=is_alone, now=now, bytes_max=100
    )


@pytest.fixture
def lane(now: Now) -> Iterator[DirectoryLane]:
    made = make_lane(now, is_alone=True)
    yield made
    made.close()
    made.join()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def test_a_directory_has_to_prove_fast_again_and_again(lane: DirectoryLane, now: Now) -> None:
    assert not lane.is_direct(now())
    lane.on_append(now() - 0.001, now())
    assert lane.is_direct(now())
    assert lane.is_direct(now() + limits.PROVEN_SECONDS / 2)
    assert not lane.is_direct(now() + limits.PROVEN_SECONDS)


def pass_time(lane: DirectoryLane, now: Now, seconds: float) -> None:
    """Appends every half a second, all of them fast."""
    for _ in range(int(seconds / 0.5)):
        now.seconds += 0.5
        lane.on_append(now() - 0.001, now())


def test_a_slow_append_sends_the_next_ones_to_the_thread_longer_each_time(
    lane: DirectoryLane, now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    for rest in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        lane.on_append(now() - 2 * limits.SLOW_APPEND_SECONDS, now())
        pass_time(lane, now, rest - 0.5)
        assert not lane.is_direct(now())
        pass_time(lane, now, 0.5)
        assert lane.is_direct(now())
    pass_time(lane, now, limits.DIRECT_AGAIN_SECONDS_MAX + 0.5)
    lane.on_append(now() - 2 * limits.SLOW_APPEND_SECONDS, now())
    pass_time(lane, now, limits.DIRECT_AGAIN_SECONDS)
    assert lane.is_direct(now())
    assert len(caplog.records) == 2


async def test_the_writer_thread_proves_a_directory_fast_or_slow(lane: DirectoryLane, now: Now) -> None:
    def append(disk_seconds: float) -> LaneItem:
        def work() -> None:
            now.seconds += disk_seconds

        return lane.submit(work, lambda *_: ended.append(item.seconds), 1)

    ended: list[float] = []
    for disk_seconds, is_fast in ((0.0, True), (2 * limits.SLOW_IN_THREAD_SECONDS, False)):
        item = append(disk_seconds)
        await until(lambda: ended)
        lane.on_threaded_append(ended.pop(), has_written=True)
        assert lane.is_direct(now()) == is_fast


def test_what_wrote_nothing_proves_no_directory_fast(lane: DirectoryLane, now: Now) -> None:
    lane.on_threaded_append(0.0, has_written=False)
    assert not lane.is_direct(now())
    lane.on_threaded_append(0.0, has_written=True)
    assert lane.is_direct(now())
    lane.on_threaded_append(2 * limits.SLOW_IN_THREAD_SECONDS, has_written=False)
    assert not lane.is_direct(now())


def test_one_of_several_directories_is_never_appended_to_on_the_event_loop(now: Now) -> None:
    lane = make_lane(now, is_alone=False)
    lane.on_append(now() - 0.001, now())
    assert not lane.is_direct(now())


async def test_items_run_in_order_and_are_delivered_in_order(lane: DirectoryLane) -> None:
    ran: list[int] = []
    ended: list[tuple[object, BaseException | None]] = []

    def work(number: int) -> int:
        ran.append(number)
        if number == 3:
            raise KafkaError(ErrorCode.kafka_storage_error, "full")
        return number

    for number in range(6):
        lane.submit(
            lambda number=number: work(number),  # type: ignore[misc]
            lambda result, error: ended.append((result, error)),
        )
    await until(lambda: len(ended) == 6)
    assert ran == list(range(6))
    assert [result for result, _ in ended] == [0, 1, 2, None, 4, 5]
    assert isinstance(ended[3][1], KafkaError)


async def test_what_has_not_begun_can_be_taken_back_and_its_bytes_are_free(lane: DirectoryLane) -> None:
    go, ran, ended = threading.Event(), [], []

    def first() -> None:
        go.wait(20)
        ran.append("first")

    running = lane.submit(first, lambda *_: ended.append("first"), 60)
    await until(lambda: not lane._waiting)
    waiting = lane.submit(lambda: ran.append("second"), lambda *_: ended.append("second"), 40)
    with pytest.raises(KafkaError, match="/d is slow: 100 bytes of appends wait"):
        lane.submit(lambda: ran.append("third"), lambda *_: None, 1)
    assert not lane.withdraw(running)
    assert lane.withdraw(waiting)
    assert not lane.withdraw(waiting)
    lane.submit(lambda: ran.append("third"), lambda *_: ended.append("third"), 40)
    go.set()
    await until(lambda: len(ended) == 2)
    assert ran == ended == ["first", "third"]
    assert lane.waiting_bytes == 0


async def test_a_large_append_is_taken_when_nothing_else_waits(lane: DirectoryLane) -> None:
    ended: list[object] = []
    lane.submit(lambda: None, lambda *_: ended.append(1), 1_000)
    await until(lambda: ended)


async def test_a_callback_that_fails_harms_no_other(lane: DirectoryLane) -> None:
    ended: list[object] = []

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    lane.submit(lambda: None, broken, 1)
    lane.submit(lambda: None, lambda *_: ended.append(1), 1)
    await until(lambda: ended)
    assert lane.waiting_bytes == 0


def test_a_disk_that_refuses_is_one_line_until_it_has_been_well_for_a_while(
    lane: DirectoryLane, now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        lane.on_refusal("No space left on device")
        lane.on_success()  # a small one fits
        now.seconds += limits.TROUBLE_OVER_SECONDS * 0.6  # too seldom for others to take over
    assert [line.message for line in caplog.records] == ["cannot append: the disk refuses"]
    assert lane.is_unwell
    now.seconds += limits.TROUBLE_OVER_SECONDS * 0.4
    lane.on_success()
    assert [line.message for line in caplog.records][1:] == ["the disk takes appends again"]
    assert not lane.is_unwell


async def test_an_item_that_does_not_end_makes_the_directory_stalled(lane: DirectoryLane, now: Now) -> None:
    go, ended = threading.Event(), []
    lane.submit(lambda: go.wait(20), lambda *_: ended.append(1))
    await until(lambda: not lane._waiting)
    assert not lane.is_stalled
    now.seconds += limits.STALLED_SECONDS + 0.1
    assert lane.is_stalled
    go.set()
    await until(lambda: ended)
    await until(lambda: not lane.is_stalled)


async def test_a_look_up_is_not_waited_for_for_ever(lane: DirectoryLane) -> None:
    go = threading.Event()
    with pytest.raises(KafkaError, match="/d did not answer within 1 ms"):
        await lane.run(lane.read, lambda: go.wait(20), wait_ms=1)
    go.set()
