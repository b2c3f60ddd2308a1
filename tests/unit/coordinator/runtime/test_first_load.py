"""Requests that come while a coordinator loads a partition for the first time: they wait, and not for too long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from coordinator_node import Node, running
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.load_times import LoadTimes
from barnabas.coordinator.runtime.log_errors import NOT_TAKEN
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)


async def test_requests_wait_for_the_first_load(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    early = [asyncio.create_task(node.commit(1)), asyncio.create_task(node.fetch())]
    listing = asyncio.create_task(node.calls.ListGroups(pb.ListGroupsRequest()))
    described = asyncio.create_task(node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"])))
    await asyncio.sleep(0)
    assert not any(task.done() for task in (*early, listing, described))
    async with running(node):
        assert await early[0] is ErrorCode.none
        assert await early[1] in (-1, 1)
        assert (await listing).error_code == ErrorCode.none
        assert (await described).groups[0].error_code in (ErrorCode.none, ErrorCode.group_id_not_found)


async def test_requests_wait_for_the_first_load_while_the_log_has_no_leader(log: LogInMemory) -> None:
    """Of a broker that died another one takes over what it owned, and perhaps later what it led."""
    node = Node("a", log)
    node.see("a")
    log.fail_with = ErrorCode.coordinator_not_available
    early = asyncio.create_task(node.commit(1))

    async def elect() -> bool:
        while log.tries < 3:
            await asyncio.sleep(0)
        log.fail_with = None
        return early.done()

    electing = asyncio.create_task(elect())
    async with running(node):
        assert await early is ErrorCode.none
        assert not await electing


@contextlib.asynccontextmanager
async def loading(node: Node) -> AsyncIterator[None]:
    """While the coordinator tries to load, whether it can or not."""
    task = asyncio.create_task(node.coordinator.partitions.run())
    try:
        yield
    finally:
        task.cancel()


async def more_tries(log: LogInMemory, count: int = 5) -> None:
    """Wait until the log was tried so often from here on."""
    wanted = log.tries + count
    async with asyncio.timeout(10):
        while log.tries < wanted:
            await asyncio.sleep(0)


async def test_nobody_waits_long_for_a_log_that_gets_no_leader(log: LogInMemory) -> None:
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=60_000))
    node.see("a")
    log.fail_with = ErrorCode.coordinator_not_available
    early = asyncio.create_task(node.commit(1))
    async with loading(node):
        await more_tries(log)
        assert not early.done()
        node.clock.advance(60_000)
        assert await early is ErrorCode.coordinator_load_in_progress
        assert await node.commit(2) is ErrorCode.coordinator_load_in_progress


async def test_a_node_that_opens_its_logs_is_waited_for(log: LogInMemory) -> None:
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=60_000))
    node.see("a")
    log.fail_with = ErrorCode.not_leader_or_follower
    early = asyncio.create_task(node.commit(1))
    async with loading(node):
        await more_tries(log)
        node.clock.advance(60_000)
        await more_tries(log)
        assert not early.done()
        log.fail_with = None
        assert await early is ErrorCode.none


async def test_a_log_that_gets_another_leader_is_read_at_once(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 60_000)
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=60_000))
    node.see("a")
    log.fail_with = ErrorCode.coordinator_not_available
    early = asyncio.create_task(node.commit(1))
    async with loading(node):
        await more_tries(log, 1)
        log.fail_with = None
        tries = log.tries
        node.see("a", topics=("another change",))
        for _turn in range(100):
            await asyncio.sleep(0)
        assert log.tries == tries
        node.see("a", leader_epoch=1)
        async with asyncio.timeout(10):
            assert await early is ErrorCode.none


async def test_pauses_between_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay short for as long as requests wait."""
    for name, pause_ms in (
        ("LOAD_RETRY_MS_MIN", 1),
        ("EARLY_LOAD_RETRY_MS_MAX", 4),
        ("LOAD_RETRY_MS_MAX", 20),
    ):
        monkeypatch.setattr(limits, name, pause_ms)
    clock = ManualClock()
    times, late = LoadTimes(clock, 1_000), LoadTimes(clock, 1_000)

    async def pauses(of: LoadTimes) -> list[int]:
        taken = []
        for _ in range(5):
            of.begin()
            taken.append(of._pause_ms)
            await of.pause()
        return taken

    late.end_wait()
    assert await pauses(times) == [1, 2, 4, 4, 4]
    assert await pauses(late) == [1, 2, 4, 8, 16]
    clock.advance(1_000)
    assert await pauses(times) == [4, 8, 16, 20, 20]
    times.on_loaded()
    assert await pauses(times) == [1, 2, 4, 8, 16]
    for leader, leader_epoch in ((2, 1), (3, 1), (3, 2)):
        times.begin()
        times.on_leader(leader, leader_epoch)
        await times.pause()
        assert times._pause_ms == 1
        await pauses(times)


@pytest.mark.parametrize("code", NOT_TAKEN)
async def test_a_log_that_takes_nothing_is_asked_as_often_as_by_writes(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Nobody waits for the load: who asks is told at once, and asks again."""
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MIN", 1)
    monkeypatch.setattr(limits, "APPEND_RETRY_MS_MAX", 4)
    times = LoadTimes(ManualClock(), 1_000)
    for expected in (1, 2, 4, 4):
        times.begin()
        times.on_failed(KafkaError(code))
        assert times._pause_ms == expected
        await times.pause()
    async with asyncio.timeout(0):
        await times.wait_for_first()
    times.on_failed(KafkaError(ErrorCode.coordinator_not_available))
    await times.pause()
    assert times._pause_ms == 8
    times._pause_ms = 60_000
    times.on_failed(KafkaError(code))
    async with asyncio.timeout(10):
        await times.pause()


async def test_who_waits_for_the_first_load_hears_that_the_partition_went_elsewhere(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    early = asyncio.create_task(node.commit(1))
    await asyncio.sleep(0)
    node.see("b", 1)
    assert await early is ErrorCode.not_coordinator
