"""Several coroutines at once, and one as it is: most requests name one group, one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def gather(coroutines: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """What `asyncio.gather` returns, and raises; a single one runs in the caller's task."""
    every = list(coroutines)
    if len(every) == 1:
        return [await every[0]]
    return await asyncio.gather(*every)
