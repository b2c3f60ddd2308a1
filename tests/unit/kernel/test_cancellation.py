"""A task that outlives a task group is cancelled exactly when somebody cancelled it."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.kernel.cancellation import run_apart


class Failing:
    """Two parts: one fails when told; the other, asked to end then, takes until it is told."""

    def __init__(self) -> None:
        self.is_waiting, self.is_ending = asyncio.Event(), asyncio.Event()
        self.may_fail, self.may_end = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fail())
            tasks.create_task(self._linger())

    async def _fail(self) -> None:
        await self.may_fail.wait()
        raise OSError("failed")

    async def _linger(self) -> None:
        self.is_waiting.set()  # and the group waits for its parts
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def go_on_after_errors(work: Failing) -> int:
    """How often the task is being cancelled as it sees it after the error."""
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await run_apart(work.run())
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_a_part_that_fails_leaves_nobody_cancelled() -> None:
    work = Failing()
    running = asyncio.create_task(go_on_after_errors(work))
    await work.is_waiting.wait()
    work.may_fail.set()
    work.may_end.set()
    assert await running == 0


async def test_who_is_cancelled_while_a_failed_group_ends_is_cancelled() -> None:
    work = Failing()
    running = asyncio.create_task(go_on_after_errors(work))
    work.may_fail.set()
    await work.is_ending.wait()
    running.cancel()
    work.may_end.set()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_cancelling_the_caller_ends_the_work_first() -> None:
    work = Failing()
    running = asyncio.create_task(run_apart(work.run()))
    await work.is_waiting.wait()
    running.cancel()
    await work.is_ending.wait()
    assert not running.done()
    work.may_end.set()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_what_the_work_returns_comes_back() -> None:
    async def work() -> int:
        return 7

    assert await run_apart(work()) == 7
