"""Coroutines that are waited for together."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.kernel.gathering import gather


async def own_task(value: int) -> tuple[int, asyncio.Task[object] | None]:
    await asyncio.sleep(0)
    return value, asyncio.current_task()


async def test_results_come_in_order() -> None:
    assert [value for value, _ in await gather(own_task(each) for each in range(3))] == [0, 1, 2]
    assert await gather(own_task(each) for each in range(0)) == []


async def test_a_single_one_has_no_task_of_its_own() -> None:
    assert await gather([own_task(7)]) == [(7, asyncio.current_task())]


async def test_what_one_raises_is_raised() -> None:
    async def fail() -> int:
        raise ValueError("no")

    for several in ([fail()], [fail(), fail()]):
        with pytest.raises(ValueError, match="no"):
            await gather(several)
