"""The tasks of one bidirectional stream: it lives until the peer ends it, or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def serve_until_done(first: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `first` returns, then cancel the others. Raises a group with what one of them raised."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(other) for other in others]
        try:
            await first
        finally:
            for task in running:
                task.cancel()
