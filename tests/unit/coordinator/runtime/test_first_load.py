"""Requests that come while a coordinator loads a partition for the first time: they wait, and not for too long."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 0)


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


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


async def test_nobody_waits_long_for_a_log_that_gets_no_leader(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    log.fail_with = ErrorCode.coordinator_not_available
    loading = asyncio.create_task(node.coordinator.partitions.run())
    assert await node.commit(1) is ErrorCode.coordinator_load_in_progress
    assert limits.EARLY_LOADS <= log.tries < limits.EARLY_LOADS * 2
    loading.cancel()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those between loads, in s, which pass at once."""
    sleep, pauses = asyncio.sleep, list[float]()

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_RETRY_MS_MIN", 20)
    return pauses


async def test_a_log_that_gets_its_leader_in_the_first_second_is_loaded_soon_after(
    log: LogInMemory, pauses: list[float]
) -> None:
    node = Node("a", log)
    node.see("a")
    log.fail_with = ErrorCode.coordinator_not_available
    loading = asyncio.create_task(node.coordinator.partitions.run())
    while len(pauses) < 40:
        await asyncio.sleep(0)
    loading.cancel()
    early, late = pauses[: limits.EARLY_LOADS - 1], pauses[limits.EARLY_LOADS :]
    assert early[:4] == [0.02, 0.04, 0.08, 0.1]
    assert set(early[3:]) == {0.1}
    assert 1 < sum(early) < 1.5
    assert late[-1] == limits.LOAD_RETRY_MS_MAX / 1000
    assert late == sorted(late)


async def test_a_node_that_opens_its_logs_is_waited_for(log: LogInMemory, pauses: list[float]) -> None:
    node = Node("a", log)
    node.see("a")
    log.fail_with = ErrorCode.not_leader_or_follower
    early = asyncio.create_task(node.commit(1))
    loading = asyncio.create_task(node.coordinator.partitions.run())
    while len(pauses) < limits.EARLY_LOADS * 2:
        await asyncio.sleep(0)
    assert not early.done()
    assert pauses[-1] > limits.EARLY_LOAD_RETRY_MS_MAX / 1000, "nobody waits for so long"
    log.fail_with = None
    assert await early is ErrorCode.none
    loading.cancel()


async def test_who_waits_for_the_first_load_hears_that_the_partition_went_elsewhere(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    early = asyncio.create_task(node.commit(1))
    await asyncio.sleep(0)
    node.see("b", 1)
    assert await early is ErrorCode.not_coordinator
