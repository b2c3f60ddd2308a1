"""Keeps a set of services running, each as its own process, and stops them in order.

A service that dies is started again after a pause (`backoff.py`), which does not grow when it was ready and ended in
order: somebody has restarted it. One that exits with EXIT_USER_ERROR has said, in
one line, what the user must change: then everything stops. Stopping goes stage by stage (gateways first, the
controller last), so that each service still reaches those it needs while it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.cli.backoff import Backoff, BackoffLimits
from barnabas.cli.child import (
    ServiceSpec,
    bind_readiness_socket,
    describe_exit,
    start_child,
    watch_readiness,
)
from barnabas.kernel.clock import Clock
from barnabas.kernel.service import EXIT_USER_ERROR, STOP_SECONDS_MAX

if TYPE_CHECKING:
    from barnabas.cli.forked import ForkedProcess

PORTS_KEPT_SECONDS_MAX: Final = 1.0
"""After a longer pause the ports of a service that is started again refuse: clients may go elsewhere."""

REPEATED_STOP_SECONDS: Final = 1.0
"""Requests to stop within this time are one: a signal to a process group arrives directly and through `make`."""


@dataclass(frozen=True)
class Surroundings:
    """What all services of one supervisor share."""

    sockets: Path
    clock: Clock
    say: Callable[[str], None]
    lock_descriptor: int = -1
    backoff: BackoffLimits = field(default_factory=BackoffLimits)
    stop_seconds_max: float = STOP_SECONDS_MAX
    """How long one stage may take to stop before what is left of it is killed."""


class SupervisedService:
    """Owns one service's process: starts it, starts it again, ends it."""

    def __init__(
        self, spec: ServiceSpec, surroundings: Surroundings, forked: ForkedProcess | None = None
    ) -> None:
        """`forked` is the service's first process, if it runs already."""
        self.spec = spec
        self.restarts = 0
        self._surroundings = surroundings
        self._backoff = Backoff(surroundings.backoff)
        self._forked = forked
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._ready = asyncio.Event()
        self._was_ready = False
        """Whether the process that runs now, or ran last, has ever been."""
        self._stopping = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """Whether the process that runs now has said that it is ready."""
        return self._ready.is_set()

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def keep_running(self) -> bool:
        """Run the service until `stop`; returns False as soon as it refuses to start (EXIT_USER_ERROR)."""
        clock, say = self._surroundings.clock, self._surroundings.say
        while not self._stopping.is_set():
            await self._released.wait()
            if self._stopping.is_set():
                break
            started = clock.monotonic()
            status = await self._run_once()
            if self._stopping.is_set():
                break
            if not self._released.is_set():
                continue
            if status == EXIT_USER_ERROR:
                return False
            if status == 0 and self._was_ready:
                self._backoff.start_over()  # somebody else had it stop in order, to have it started again
            pause = self._backoff.pause_after(clock.monotonic() - started)
            if pause > PORTS_KEPT_SECONDS_MAX:
                self._refuse_clients()
            self.restarts += 1
            say(f"{self.spec.name} {describe_exit(status)}; starting it again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
        return True

    async def hold(self, number: signal.Signals) -> None:
        """End the process with a signal and keep the service down until `release`."""
        self._released.clear()
        process = self._process
        if process is not None:
            self._signal(lambda: process.send_signal(number))
            await process.wait()
        self._refuse_clients()

    def release(self) -> None:
        """Start a service that is held; the other ones notice nothing."""
        self._released.set()

    async def stop(self) -> None:
        """Ask the process to stop, wait, and kill it when it takes too long."""
        self._stopping.set()
        self._released.set()
        process = self._process
        if process is not None:
            await self._end(process)
        self._refuse_clients()

    async def _end(self, process: asyncio.subprocess.Process | ForkedProcess) -> None:
        self._signal(process.terminate)
        limit = self._surroundings.stop_seconds_max
        try:
            async with asyncio.timeout(limit):
                await process.wait()
        except TimeoutError:
            self._surroundings.say(f"{self.spec.name} did not stop within {limit:g} s; killing it")
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End the process at once and for good."""
        self._stopping.set()
        self._released.set()
        if self._process is not None:
            self._signal(self._process.kill)

    async def _run_once(self) -> int:
        path = str(self._surroundings.sockets / f"{self.spec.name}.notify")
        forked, self._forked = self._forked, None
        self._was_ready = False
        if self.spec.kept is not None:
            self.spec.kept.on_process()
        readiness = bind_readiness_socket(path) if forked is None else forked.readiness
        with watch_readiness(readiness, self._on_ready):
            self._process = forked or await start_child(self.spec, path, self._surroundings.lock_descriptor)
            if self._stopping.is_set():  # `stop` came while the process was being made
                self._signal(self._process.terminate)
            try:
                return await self._process.wait()
            finally:
                self._process = None
                self._ready.clear()

    def _refuse_clients(self) -> None:
        """Nobody comes in a moment to serve those who connect now."""
        if self.spec.kept is not None:
            self.spec.kept.refuse()

    def _on_ready(self, ready: bool) -> None:
        if ready:
            self._was_ready = True
            self._ready.set()
        else:
            self._ready.clear()

    @staticmethod
    def _signal(send: Callable[[], None]) -> None:
        with contextlib.suppress(ProcessLookupError):
            send()


class Supervisor:
    """Owns the services of one cluster from start to stop."""

    def __init__(
        self,
        stages: Sequence[Sequence[ServiceSpec]],
        surroundings: Surroundings,
        forked: Mapping[str, ForkedProcess] = MappingProxyType({}),
    ) -> None:
        """`stages` in the order in which they stop; they all start at once. `forked` run already, by their names."""
        self._clock = surroundings.clock
        self._stages = [
            [SupervisedService(spec, surroundings, forked.get(spec.name)) for spec in stage]
            for stage in stages
        ]
        self.services = [service for stage in self._stages for service in stage]
        self._stopping = asyncio.Event()
        self._stopping_since = 0.0
        self._refused = False
        self.ended_now = False

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Run everything until `begin_stopping` or a refusal; returns the exit status.

        `on_ready` is called once, when every service is ready for the first time.
        """
        async with asyncio.TaskGroup() as tasks:
            for service in self.services:
                tasks.create_task(self._supervise(service), name=service.spec.name)
            announcing = tasks.create_task(self._announce(on_ready), name="announce")
            await self._stopping.wait()
            announcing.cancel()
            for stage in self._stages:
                await asyncio.gather(*(service.stop() for service in stage))
        return EXIT_USER_ERROR if self._refused else 0

    def begin_stopping(self) -> None:
        """Stop in order; called again, later than REPEATED_STOP_SECONDS, kill what is left."""
        now = self._clock.monotonic()
        if not self._stopping.is_set():
            self._stopping_since = now
            self._stopping.set()
        elif now - self._stopping_since >= REPEATED_STOP_SECONDS:
            self._kill_all()

    def end_now(self) -> None:
        """Stop without any order: for data that nobody will read again."""
        self.ended_now = True
        self._stopping.set()
        self._kill_all()

    def _kill_all(self) -> None:
        for service in self.services:
            service.kill()

    async def _supervise(self, service: SupervisedService) -> None:
        if not await service.keep_running():
            self._refused = True
            self.begin_stopping()

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        while not all(service.is_ready for service in self.services):
            for service in self.services:
                await service.wait_ready()
        on_ready()
