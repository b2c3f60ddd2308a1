"""What is decided in one turn of the event loop goes into the log together, at once where the log is in the process."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running
from log_in_memory import LogInMemory

from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.tracing import in_trace

GROUPS = [f"g{number}" for number in range(20)]


async def test_what_is_decided_in_one_turn_is_one_append(log: LogInMemory) -> None:
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        before = log.appends
        codes = await asyncio.gather(*(node.commit(7, group=group) for group in GROUPS))
        assert set(codes) == {ErrorCode.none}
        assert log.appends == before + 1
        assert [await node.fetch(group=group) for group in GROUPS] == [7] * len(GROUPS)


async def test_what_is_decided_behind_a_write_that_waits_goes_behind_it(log: LogInMemory) -> None:
    """None overtakes it, although the log would take that at once."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        gate = log.gate = asyncio.Event()
        first = asyncio.create_task(node.commit(6))
        await asyncio.sleep(0.01)
        log.gate = None
        others = [asyncio.create_task(node.commit(7, group=group)) for group in GROUPS]
        await asyncio.sleep(0.01)
        assert not any(each.done() for each in (first, *others))
        gate.set()
        assert set(await asyncio.gather(first, *others)) == {ErrorCode.none}
        assert await node.fetch() == 6


async def test_where_the_log_refuses_at_once_the_request_tells(log: LogInMemory) -> None:
    log.is_here = True
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        log.epochs[0] = 1
        assert await node.commit(6) is ErrorCode.not_coordinator
        log.epochs[0] = 0


async def test_what_is_traced_goes_where_the_spans_are(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.is_here = True
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        sent = 0
        append = log.append

        async def counting(*asked: object) -> int:
            nonlocal sent
            sent += 1
            return await append(*asked)  # type: ignore[arg-type]

        monkeypatch.setattr(log, "append", counting)
        assert await node.commit(6) is ErrorCode.none
        assert sent == 0
        monkeypatch.setattr("barnabas.kernel.tracing._tracer", object())
        with in_trace(f"00-{1:032x}-{2:016x}-01"):
            assert await node.commit(7) is ErrorCode.none
        assert (sent, node.state()) == (1, PartitionState.SERVING)


async def test_a_fault_on_the_way_has_the_partition_read_again(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and what is in the log is known again."""
    node = Node("a", log)
    node.see("a")
    async with running(node):
        assert await node.commit(5) is ErrorCode.none
        (runtime,) = node.coordinator.partitions.runtimes()

        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(runtime.shard, "on_committed", fail)
        async with asyncio.timeout(5):
            assert await node.commit(6) is ErrorCode.unknown_server_error
        async with asyncio.timeout(5):
            while node.state() is not PartitionState.SERVING:
                await asyncio.sleep(0.01)
        assert await node.fetch() == 6
        assert await node.commit(7) is ErrorCode.none
