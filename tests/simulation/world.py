"""One simulated world: its time, its network, its machines, and what went wrong in it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import random
import sys
import types
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, Final

from trace_of_run import Trace
from virtual_loop import Life, NothingLeftError, VirtualLoop
from virtual_network import VirtualNetwork
from virtual_sockets import listen
from virtual_store import Quorum

from barnabas.kernel import clock as kernel_clock

BEGINNING_MS: Final = 1_700_000_000_000


class Violation(Exception):
    """Something happened that must not, whatever fails."""


class World:
    """Owner of all that one seed decides."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        _keep_what_was_before()
        self.seed = seed
        self.chance = self.chance_of("world")
        self.loop = VirtualLoop()
        self.trace = Trace(keeps_all=keeps_trace)
        self.network = VirtualNetwork(self.chance_of("network"), self.trace)
        self.loop.listen = partial(listen, self.network)
        self.quorum: Quorum | None = None
        self.violations: list[str] = []
        self.lives: list[Life] = []
        self.clock_jumped_at = float("-inf")
        """When one that a coordinator goes by did so last."""
        self._broken = asyncio.Event()
        self.loop.on_unhandled = lambda what: self.violate(f"unhandled: {what}")

    def chance_of(self, name: str) -> random.Random:
        """Chance of its own, so that what one part draws moves nothing elsewhere."""
        return random.Random(f"{self.seed}/{name}")

    @property
    def now(self) -> float:
        return self.loop.time()

    def violate(self, what: str) -> None:
        """Something happened that must not; the run ends."""
        self.trace.say("check", f"VIOLATION: {what}")
        self.violations.append(what)
        self._broken.set()

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Run `story` to its end, or to the first violation."""

        async def until_broken() -> None:
            self.quorum = Quorum()
            telling = asyncio.get_running_loop().create_task(story, name="story")
            broken = asyncio.get_running_loop().create_task(self._broken.wait(), name="violations")
            await asyncio.wait((telling, broken), return_when=asyncio.FIRST_COMPLETED)
            broken.cancel()
            if telling.done():
                telling.result()

        with self._as_the_world(), _garbage_of_its_own():
            try:
                self.loop.run_until_complete(until_broken())
            except Violation as violation:
                self.violations.append(str(violation))
            except NothingLeftError:
                self.violations.append("everybody waits for ever")
            finally:
                self._bury()

    @contextlib.contextmanager
    def _as_the_world(self) -> Iterator[None]:
        logger = logging.getLogger("barnabas")
        level, propagates = logger.level, logger.propagate
        logger.addHandler(self.trace)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            with machine_time(self.loop):
                yield
        finally:
            logger.removeHandler(self.trace)
            logger.setLevel(level)
            logger.propagate = propagates

    def _bury(self) -> None:
        """Let go of what still runs, without a sound."""
        for life in self.lives:
            life.is_ended = True
        self.loop.close()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        # What is closed here may ask for the loop that it is on: one that asyncio makes then would keep this world.
        asyncio.set_event_loop(self.loop)
        try:
            for life in self.lives:
                for task in list(life.tasks):
                    _close(task)
                life.tasks.clear()
                life.held.clear()
            for task in asyncio.all_tasks(self.loop):
                _close(task)
            gc.collect()
        finally:
            asyncio.set_event_loop(None)
            sys.unraisablehook = hook


@functools.cache
def _keep_what_was_before() -> None:
    """Have what is there before the first world, modules above all, never searched for garbage."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _garbage_of_its_own() -> Iterator[None]:
    """Have what is built here searched for garbage in the end. Services exempt what stays for as long as they do
    (`gc.freeze`), but each world ends."""
    freeze = gc.freeze
    gc.freeze = lambda: None
    try:
        yield
    finally:
        gc.freeze = freeze


def _close(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work = task.get_coro()
    if isinstance(work, types.CoroutineType) and work.cr_running:
        return
    with contextlib.suppress(BaseException):
        work.close()  # type: ignore[union-attr]


@contextlib.contextmanager
def machine_time(loop: VirtualLoop) -> Iterator[None]:
    """What this machine does takes virtual time too: `machine_seconds` is the loop's, wherever it was imported."""
    real = kernel_clock.machine_seconds
    modules = [each for name, each in sorted(sys.modules.items()) if name.startswith("barnabas.")]
    named = [module for module in modules if vars(module).get("machine_seconds") is real]
    defaults = [
        (function.__kwdefaults__, name)
        for module in named
        for kind in vars(module).values()
        if isinstance(kind, type)
        for function in vars(kind).values()
        if isinstance(function, types.FunctionType)
        for name, value in (function.__kwdefaults__ or {}).items()
        if value is real
    ]
    for module in named:
        module.machine_seconds = loop.time  # type: ignore[attr-defined]
    for kwdefaults, name in defaults:
        kwdefaults[name] = loop.time
    try:
        yield
    finally:
        for module in named:
            module.machine_seconds = real  # type: ignore[attr-defined]
        for kwdefaults, name in defaults:
            kwdefaults[name] = real
