"""Where the records of batches are looked at: how much on the event loop, how much may wait for the thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.threads import SystemThreads
from barnabas.storage import limits
from barnabas.storage.directories.record_checks import LoopTime, RecordChecks


@pytest.fixture
def checks() -> Iterator[RecordChecks]:
    made = RecordChecks(SystemThreads(), bytes_max=100)
    yield made
    made.close()


class Loop:
    """Short looks on an event loop, by a clock that moves when it is told."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.time = LoopTime(lambda: self.seconds)

    def look(self, seconds: float) -> bool:
        if not self.time.begin():
            return False
        self.seconds += seconds
        self.time.end()
        return True


def test_short_looks_take_a_share_of_the_event_loops_time_however_many_they_are() -> None:
    loop, looked, began = Loop(), 0.0, 1_000.0
    while loop.seconds < began + 10:
        if loop.look(0.001):
            looked += 0.001
        else:
            loop.seconds += 0.001
    share = limits.CHECKS_LOOP_SHARE_MAX
    assert looked == pytest.approx(10 * share, rel=0.05)


def test_what_was_not_used_is_saved_up_but_not_for_long() -> None:
    loop = Loop()
    for _ in range(2):
        looks = 0
        while loop.look(0.001):
            looks += 1
        most = limits.CHECKS_LOOP_SECONDS_MAX / (1 - limits.CHECKS_LOOP_SHARE_MAX) / 0.001
        assert looks <= most + 1
        loop.seconds += 3_600


def test_a_look_that_took_long_is_made_up_for() -> None:
    loop = Loop()
    assert loop.look(1.0)
    loop.seconds += 1.0
    assert not loop.look(0.001)
    loop.seconds += 1.0 / limits.CHECKS_LOOP_SHARE_MAX
    assert loop.look(0.001)


def test_a_partition_takes_no_more_than_half_of_what_may_wait(checks: RecordChecks) -> None:
    checks.reserve(30, 0)
    checks.reserve(20, 30)
    for size_bytes in (1, 50):
        with pytest.raises(
            KafkaError, match="50 bytes of records wait to be looked at, 50 of this"
        ) as refused:
            checks.reserve(size_bytes, 50)
        assert refused.value.code is ErrorCode.kafka_storage_error
    checks.reserve(0, 50)
    checks.reserve(25, 0)
    checks.release(50)
    checks.reserve(12, 25)
    assert checks.waiting_bytes == 37


def test_the_first_of_a_partition_is_taken_longer(checks: RecordChecks) -> None:
    checks.reserve(1_000, 0)
    checks.release(900)
    checks.reserve(100, 0)
    with pytest.raises(KafkaError):
        checks.reserve(1, 0)


async def test_a_fault_of_ours_is_logged_and_told(
    checks: RecordChecks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    told: asyncio.Future[Future[Any]] = asyncio.get_running_loop().create_future()

    def broken() -> None:
        raise RuntimeError("a fault of ours")

    checks.submit(broken, told.set_result)
    async with asyncio.timeout(20):
        assert isinstance((await told).exception(), RuntimeError)
    assert [line.message for line in caplog.records] == ["looking at records failed"]


async def test_what_has_not_begun_can_be_cancelled(checks: RecordChecks) -> None:
    go, ended, ran = threading.Event(), asyncio.Event(), []
    checks.submit(lambda: go.wait(20), lambda _: None)
    second = checks.submit(lambda: ran.append("second"), lambda _: None)
    checks.submit(lambda: ran.append("third"), lambda _: ended.set())
    assert second.cancel()
    go.set()
    async with asyncio.timeout(20):
        await ended.wait()
    assert ran == ["third"]
