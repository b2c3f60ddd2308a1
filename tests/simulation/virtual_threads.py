"""Threads without threads: work is done in one moment, some virtual time after it was given, and known some time later;
but for what a fault stops in its midst (`Halt`), which has a real one that runs only while all else waits.

Meanwhile others go on, and that is the point: whatever can happen between giving work to a thread and hearing of its
end does happen under some seed.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from virtual_loop import OWNER

P = ParamSpec("P")
T = TypeVar("T")

SHARED_THREADS: Final = 8


class VirtualThreads:
    """Where the work of one process that may block is done; `seconds` says how long each half of a piece takes, and
    `may_halt` whether a piece that begins now may come to a `Halt`.
    """

    def __init__(self, seconds: Callable[[], float], may_halt: Callable[[], bool] = lambda: False) -> None:
        self._seconds = seconds
        self._may_halt = may_halt
        self._shared = VirtualExecutor(seconds, SHARED_THREADS)

    def executor(self, name: str, threads_max: int) -> Executor:
        return VirtualExecutor(self._seconds, threads_max, self._may_halt)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._shared, call)


def disk_seconds(chance: random.Random, slowness: Callable[[], float]) -> Callable[[], float]:
    """Mostly a fraction of a millisecond, seldom many of them; `slowness` times as much."""

    def seconds() -> float:
        usual = chance.expovariate(1 / 0.0003)
        return slowness() * (usual if chance.random() < 0.97 else usual + chance.uniform(0.005, 0.08))

    return seconds


class _Work:
    __slots__ = ("call", "future", "timer")

    def __init__(self, call: Callable[[], Any], executor: VirtualExecutor) -> None:
        self.call = call
        self.future: Future[Any] = _Awaited(executor)
        self.timer: asyncio.TimerHandle | None = None


class _Awaited(Future[Any]):
    """A thread that waits for its result holds up nobody: all that was given to the pool is done at once."""

    def __init__(self, executor: VirtualExecutor) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._executor.do_all()
        return super().result(timeout=0)


class Halt:
    """A place in the midst of work, which stops there until this `is_over`. Owner of the threads that stand there."""

    def __init__(self) -> None:
        self.is_over = False
        self._halted: list[_Thread] = []

    def __len__(self) -> int:
        return len(self._halted)

    def pause(self) -> None:
        """For work that `may_halt`."""
        if not self.is_over:
            thread: _Thread = _HERE.thread
            self._halted.append(thread)
            thread.stop()

    def end(self) -> None:
        """All of it goes on. That of a process which has ended does so at once, and does nothing."""
        self.is_over = True
        for thread in self._halted:
            owner = thread.context.get(OWNER)
            if owner is not None and owner.is_ended:
                thread.go_on()
            else:
                asyncio.get_running_loop().call_soon(thread.on_end_of_halt, context=thread.context)


_HERE = threading.local()


class _Thread:
    """A real one, for one piece of work that may halt. It runs only while its executor waits: nothing is left to
    chance.
    """

    def __init__(self, call: Callable[[], Any], on_end_of_halt: Callable[[_Thread], None]) -> None:
        self.context = contextvars.copy_context()
        self.outcome: tuple[object, BaseException | None] | None = None
        self._call = call
        self._on_end_of_halt = on_end_of_halt
        self._loop = asyncio.get_running_loop()
        self._goes, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._goes.acquire()
        _HERE.thread = self
        asyncio._set_running_loop(self._loop)
        try:
            self.outcome = self.context.copy().run(_outcome, self._call)
        except BaseException as error:  # else who waits for it would wait for ever
            self.outcome = None, error
        self._rests.release()

    def go_on(self) -> None:
        """Until it is over, or stops."""
        if self.outcome is None:
            self._goes.release()
            self._rests.acquire()

    def stop(self) -> None:
        """In the thread: somebody else is to go on."""
        self._rests.release()
        self._goes.acquire()

    def on_end_of_halt(self) -> None:
        self._on_end_of_halt(self)


class VirtualExecutor(Executor):
    """Owner of what waits for one pool and of what its threads are at."""

    def __init__(
        self, seconds: Callable[[], float], threads_max: int, may_halt: Callable[[], bool] = lambda: False
    ) -> None:
        self._seconds = seconds
        self._threads_max = threads_max
        self._may_halt = may_halt
        self._waiting: deque[_Work] = deque()
        self._begun: dict[_Work, None] = {}
        self._halted: dict[_Thread, _Work] = {}
        self._busy = 0
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises RuntimeError after `shutdown`, as real pools do."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        work = _Work(partial(fn, *args, **kwargs), self)
        self._waiting.append(work)
        self._begin()
        return work.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True
        if cancel_futures:
            waiting, self._waiting = self._waiting, deque()
            for work in waiting:
                work.future.cancel()
        if wait:
            self.do_all()

    def do_all(self) -> None:
        """Whoever waits holds up his own thread: it all is done before he goes on."""
        while self._halted:
            thread = next(iter(self._halted))
            work = self._halted.pop(thread)
            self._busy -= 1
            while thread.outcome is None:
                thread.go_on()
            _settle(work.future, *thread.outcome)
        while self._begun or self._waiting:
            work = next(iter(self._begun), None) or self._waiting.popleft()
            self._begun.pop(work, None)
            if work.timer is not None:
                work.timer.cancel()
                self._busy -= 1
            if work.future.set_running_or_notify_cancel():
                _settle(work.future, *_outcome(work.call))

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._busy < self._threads_max:
            work = self._waiting.popleft()
            self._busy += 1
            self._begun[work] = None
            work.timer = loop.call_later(self._seconds(), self._do, work)

    def _do(self, work: _Work) -> None:
        del self._begun[work]
        if not work.future.set_running_or_notify_cancel():
            self._end(work, None, None)
        elif self._may_halt():
            thread = _Thread(work.call, self._go_on)
            self._halted[thread] = work
            self._go_on(thread)
        else:
            outcome = _outcome(work.call)
            asyncio.get_running_loop().call_later(self._seconds(), self._end, work, *outcome)

    def _go_on(self, thread: _Thread) -> None:
        if thread not in self._halted:
            return  # somebody could not wait
        thread.go_on()
        if thread.outcome is not None:
            work = self._halted.pop(thread)
            asyncio.get_running_loop().call_later(self._seconds(), self._end, work, *thread.outcome)

    def _end(self, work: _Work, result: object, error: BaseException | None) -> None:
        self._busy -= 1
        if not work.future.cancelled():
            _settle(work.future, result, error)
        self._begin()


def _outcome(call: Callable[[], Any]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def _settle(future: Future[Any], result: object, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
