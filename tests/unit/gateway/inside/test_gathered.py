"""What one request gathers from other services ends with the request's time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.inside.gathered import Gathered


def request(lock: asyncio.Lock, seconds: float) -> Any:
    parts = SimpleNamespace(budget=ByteBudget(1 << 40), gathering=lock)
    return SimpleNamespace(parts=parts, timeout_seconds=seconds)


async def test_nobody_waits_for_others_longer_than_its_own_time() -> None:
    lock = asyncio.Lock()
    async with Gathered(request(lock, 60)) as first, Gathered(request(lock, 0.05)) as second:
        for each in (first, second):
            each.add(limits.GATHERED_BYTES_FREE + 1)
        await first.may_go_on()
        async with asyncio.timeout(5):
            await second.may_go_on()
        assert second.is_full
        assert not first.is_full
    assert not lock.locked()


async def test_nothing_more_is_asked_for_when_the_time_is_over() -> None:
    async with Gathered(request(asyncio.Lock(), 0.02)) as gathered:
        assert not gathered.is_full
        await asyncio.sleep(0.03)
        assert gathered.is_full
