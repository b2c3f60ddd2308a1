"""Whoever stops a service waits for what is under way, and no longer than it may."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from barnabas.links.under_way import UnderWay


async def test_all_that_has_begun_is_waited_for() -> None:
    under_way = UnderWay()
    with contextlib.suppress(KeyError), under_way:
        with under_way:
            waiting = asyncio.create_task(under_way.wait_until_none(30))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done(), "one of two is over"
        raise KeyError  # a failed call is over, too
    async with asyncio.timeout(10):
        await waiting


async def test_nothing_is_waited_for_where_nothing_is_under_way() -> None:
    under_way = UnderWay()
    with under_way:
        pass
    async with asyncio.timeout(10):
        await under_way.wait_until_none(30)


@pytest.mark.parametrize("seconds_max", [None, 0.0, 0.01])
async def test_nobody_waits_longer_than_they_may(seconds_max: float | None) -> None:
    under_way = UnderWay()
    with under_way:
        async with asyncio.timeout(10):
            await under_way.wait_until_none(seconds_max)
