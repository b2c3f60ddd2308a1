"""Task groups that a task outlives: what asyncio's TaskGroup gets wrong up to Python 3.12."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a task of its own, and return or raise what it does; cancelling the caller cancels it.

    For who goes on after an error that left a TaskGroup. Where a part fails while the group already waits for the
    others, the group cancels its own task and never takes that back (`Task.cancelling` stays above 0); where its task
    is cancelled in that moment, it raises the part's error alone, and nobody asks a second time. Here the former ends
    with the task of `work`, and the latter raises CancelledError.
    """
    caller = asyncio.current_task()
    assert caller is not None
    cancelled_before = caller.cancelling()
    try:
        return await asyncio.create_task(work)
    except Exception:
        if caller.cancelling() > cancelled_before:
            raise asyncio.CancelledError from None
        raise
