"""A process that runs under the name of a service, for tests of what a supervisor tells services."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas.cli.child import ServiceSpec
from barnabas.cli.supervisor import SupervisedService, Surroundings
from barnabas.kernel.clock import SystemClock

SLEEP = (sys.executable, "-S", "-c", "import signal; signal.pause()")


@asynccontextmanager
async def running_as(role: str, folder: Path) -> AsyncIterator[SupervisedService]:
    """The first service of `role`, as far as the supervisor can tell."""
    spec = ServiceSpec(f"{role}-1", role, SLEEP, f"{folder}/{role}-1.http")
    service = SupervisedService(spec, Surroundings(folder, SystemClock(), lambda _: None))
    running = asyncio.create_task(service.keep_running())
    while service.pid is None:
        await asyncio.sleep(0)
    yield service
    service.kill()
    await running


async def no_metrics() -> bytes:
    return b""
