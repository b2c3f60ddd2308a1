"""A coordinator that another one has replaced, and that has not heard of it."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running, until
from log_in_memory import LogInMemory

from barnabas.coordinator.groups.core.records import OffsetRecord
from barnabas.kernel.errors import ErrorCode


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


async def test_a_zombie_cannot_commit(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5) is ErrorCode.none
        log.epochs[0] = 1  # the controller moves the partition; the old coordinator has not heard of it
        new.see("b", 1)
        async with running(new):
            assert await new.fetch() == 5
            assert await old.commit(6) is ErrorCode.not_coordinator
            assert await new.commit(7) is ErrorCode.none
            assert await old.fetch() is ErrorCode.coordinator_load_in_progress
            old.see("b", 1)
            assert await old.fetch() is ErrorCode.not_coordinator
            offsets = [record.value.offset for record in log.records() if isinstance(record, OffsetRecord)]  # type: ignore[union-attr]
            assert offsets == [5, 7]


async def test_a_zombie_tells_nobody_where_to_go_on(log: LogInMemory) -> None:
    """Stable offsets are what transactions go on from: it would have them written again."""
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.commit(5) is ErrorCode.none
        assert await old.fetch(stable=True) == 5
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(7) is ErrorCode.none
            assert await old.fetch() == 5, (
                "it does not know better, and whoever reads on from there reads twice at most"
            )
            assert await old.fetch(stable=True) is ErrorCode.not_coordinator
            assert await old.fetch(stable=True) is ErrorCode.coordinator_load_in_progress
            assert await new.fetch(stable=True) == 7


async def test_a_zombie_does_not_say_that_there_is_nothing(log: LogInMemory) -> None:
    old, new = Node("a", log), Node("b", log)
    old.see("a", 0)
    async with running(old):
        assert await old.fetch_all() == []
        log.epochs[0] = 1
        new.see("b", 1)
        async with running(new):
            assert await new.commit(7) is ErrorCode.none
            assert await old.fetch_all() is ErrorCode.not_coordinator
            assert await new.fetch_all() == [7]


async def test_what_was_sent_before_does_not_show_who_owns_the_partition(log: LogInMemory) -> None:
    """It landed; then the process was frozen, another one took over, and only now it hears of its write."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        log.answer_gate = asyncio.Event()
        commit = asyncio.create_task(node.commit(5))
        await until(lambda: len(log.records()) == 1)
        log.epochs[0] = 1
        fetch = asyncio.create_task(node.fetch(stable=True))
        await asyncio.sleep(0)
        log.answer_gate.set()
        assert await commit is ErrorCode.none
        assert await fetch is ErrorCode.not_coordinator


async def test_many_who_need_the_owner_share_what_is_written(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.gate = asyncio.Event()
        first = asyncio.create_task(node.fetch(stable=True))
        await until(lambda: log.tries == 3)
        end = log.ends[0]
        others = [asyncio.create_task(node.fetch(stable=True)) for _ in range(100)]
        await asyncio.sleep(0.01)
        assert not first.done()
        log.gate.set()
        assert await asyncio.gather(first, *others) == [5] * 101
        assert log.ends[0] == end + 2, "one barrier that was under way, and one behind it"
