"""How the server's end of a stream lives: until its peer is gone, or the server is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.links.under_way import UnderWay
from barnabas.rpc.answers import PeerStalled

log = get_logger("rpc.serving")

AT_ONCE: Final = ()
"""The metadata that a stream begins with: none, but they tell the peer that it is open."""


class ServiceEnding(asyncio.Event):
    """Set when a service is to take nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = UnderWay()
        """Its calls and its streams."""


async def until_gone(serving: Awaitable[None]) -> None:
    """A peer that went away or takes nothing ends its stream quietly."""
    try:
        await serving
    except* (grpc.aio.BaseError, grpc.aio.InternalError, PeerStalled) as group:
        log.debug("a peer went away", reason=str(group.exceptions[0]))


async def take_until(ending: asyncio.Event, taking: Coroutine[Any, Any, None]) -> None:
    """Run `taking` until it returns, or until `ending`. Raises a group with what it raised."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(taking)
        watching = tasks.create_task(ending.wait())
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        watching.cancel()


async def until_done(first: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `first` returns, then cancel the others. Raises a group with what one of them raised."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(other) for other in others]
        try:
            await first
        finally:
            for task in running:
                task.cancel()
