"""An event loop on which time is a number: it jumps to the next timer, and nothing waits.

Callbacks run in the order in which they were asked for, timers in the order of their times; neither the machine's
clock nor the addresses of objects decide anything. What belongs to one process is known by its `Life`, which
callbacks carry in their context: the loop holds back what a paused process would do, and drops what one that has
ended would have done, its `finally` blocks included, as the kernel does.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import itertools
import sys
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

T = TypeVar("T")

STEP_SECONDS: Final = 2e-6
"""What a callback takes: none ends in the moment in which it began, and who turns in circles gets nowhere in time."""

STEPS_MAX: Final = 20_000_000
"""Callbacks in one run; more is a loop that does not end."""


class Life:
    """One process from its start to its end, as the loop knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_ended = False
        self.held: list[asyncio.Handle] = []
        self.tasks: dict[VirtualTask, None] = {}
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)

    def __repr__(self) -> str:
        return f"<Life of {self.name}>"


OWNER: Final[contextvars.ContextVar[Life | None]] = contextvars.ContextVar("owner", default=None)


class VirtualFuture(asyncio.Future[Any]):
    """A future whose place in a set follows from its number."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class VirtualTask(asyncio.Task[Any]):
    """A task whose place in a set follows from its number: a task group cancels its tasks as a set has them."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class NothingLeftError(Exception):
    """Somebody waits, and nothing is left that could wake him."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """Owner of the time and of all that is to be done."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        self._numbers = itertools.count(1)
        self._is_running = False
        self._is_closed = False
        self.steps = 0
        self.unhandled: list[str] = []
        """What went wrong where nobody could be told."""
        self.on_unhandled: Callable[[str], None] = self.unhandled.append
        self.listen: Callable[..., Awaitable[Any]] | None = None
        """What makes the ports of servers: (make_protocol, address, starts_serving=...)."""

    # -- time and callbacks -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _step(self) -> None:
        ready = self._ready
        if not ready:
            self._advance()
        handle = ready.popleft()
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        self.steps += 1
        self._now += STEP_SECONDS
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is not None and (owner.is_ended or owner.is_paused):
            if not owner.is_ended:
                owner.held.append(handle)
            return
        handle._run()  # type: ignore[attr-defined]

    def _advance(self) -> None:
        """To the time of the next timer, and all that are due then."""
        timers, ready = self._timers, self._ready
        while not ready:
            if not timers:
                raise NothingLeftError
            when, _, timer = heapq.heappop(timers)
            if not timer.cancelled():
                self._now = max(self._now, when)
                ready.append(timer)
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])

    def resume(self, life: Life) -> None:
        """What `life` held back is done now."""
        life.is_paused = False
        held, life.held = life.held, []
        self._ready.extend(held)

    # -- tasks and futures --------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(next(self._numbers), self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        number = next(self._numbers)
        task = VirtualTask(number, coro, loop=self, name=name or f"task-{number}", context=context)
        owner = (contextvars.copy_context() if context is None else context).get(OWNER)
        if owner is not None:
            # One whose process has ended is not to be collected, for that would run what is left of it.
            owner.tasks[task] = None
            task.add_done_callback(owner.tasks.pop)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        assert isinstance(executor, Executor), "threads come from the environment"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        start_serving: bool = True,
        **_: Any,
    ) -> Any:
        assert self.listen is not None, "there is no network"
        return await self.listen(protocol_factory, f"{host}:{port}", starts_serving=start_serving)

    # -- the run ------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run `future` to its end. Raises NothingLeftError."""
        hooks, collects = sys.get_asyncgen_hooks(), gc.isenabled()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._on_dropped_generator)
        gc.disable()  # when cycles are found depends on what ran in this interpreter before
        self._is_running = True
        try:
            task = asyncio.ensure_future(future, loop=self)
            while not task.done():
                self._step()
                if self.steps > STEPS_MAX:
                    raise AssertionError(f"{STEPS_MAX} steps, and no end")
            return task.result()
        finally:
            self._is_running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collects:
                gc.enable()

    def _on_dropped_generator(self, generator: Any) -> None:
        if not self._is_closed:
            self.create_task(generator.aclose())

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._is_closed:
            return
        error = context.get("exception")
        self.on_unhandled(f"{context.get('message')}: {error!r}")
