"""Time that jumps to the next timer when nothing else is to be done, in a test that waits for nothing but timers.

So what a test says of times holds on any machine, however busy, and takes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def jumping_time() -> Iterator[None]:
    """Have the time of the running event loop jump. Nobody may wait for a thread, a process or a peer meanwhile: what
    comes from there is heard as ever, but may be late for any time-out.
    """
    loop: Any = asyncio.get_running_loop()
    now, select = loop.time(), loop._selector.select

    def jump(seconds: float | None) -> Any:
        nonlocal now
        if not seconds:
            return select(seconds)
        ready = select(0)
        if not ready:
            now += seconds
        return ready

    loop.time, loop._selector.select = lambda: now, jump
    try:
        yield
    finally:
        del loop.time, loop._selector.select
