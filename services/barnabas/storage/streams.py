"""The tasks of one bidirectional stream: it lives until the peer ends it or can no longer be written to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.rpc.answers import PeerStalled

log = get_logger("storage.streams")


async def serve_until_done(first: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `first` returns, then cancel the others. A peer that went away or takes nothing ends it quietly."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(other) for other in others]
            try:
                await first
            finally:
                for task in running:
                    task.cancel()
    except* (grpc.aio.BaseError, grpc.aio.InternalError, PeerStalled) as group:
        log.debug("a peer went away", reason=str(group.exceptions[0]))
