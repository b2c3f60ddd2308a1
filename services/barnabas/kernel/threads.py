"""Threads as an argument: a service names the pools that it needs, its environment makes them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SHARED_THREADS_MAX: Final = 8
"""Threads for `Threads.run` of one process."""


class NoThread(OSError):
    """The machine grants no thread."""


class PoolClosed(RuntimeError):
    """The pool was shut down: it takes nothing more."""


class Threads(Protocol):
    """Where work that may block is done."""

    def executor(self, name: str, threads_max: int) -> Executor:
        """A pool of its own, whose threads are called `name`; the caller shuts it down, and it then raises PoolClosed.

        Raises NoThread. Once it is there it takes all work.
        """
        ...

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do one piece of work in a pool that all share, and return what it returns. Raises NoThread."""
        ...


def start_in(pool: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    """The result of `work`, begun in `pool`. What keeps it from being begun is told by the future, too: PoolClosed at
    a stop. For those who may not fail here, because something is done already that cannot be taken back.
    """
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(pool, work)
    except Exception as error:
        failed: asyncio.Future[T] = loop.create_future()
        failed.set_exception(error)
        return failed


class SystemThreads:
    """Threads of this process."""

    def executor(self, name: str, threads_max: int) -> Executor:
        return ThreadPool(name, threads_max)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._shared, partial(work, *args, **kwargs))

    @cached_property
    def _shared(self) -> ThreadPool:
        return ThreadPool("worker", SHARED_THREADS_MAX)


class ThreadPool(Executor):
    """Owner of up to `threads_max` threads, which do what they are given in its order.

    Unlike the standard library's, it takes work whether or not the machine grants another thread: the first is there
    from the beginning, and what finds no thread of its own waits for one. And its threads keep no process from ending:
    one that is held by a disk that does not answer is left behind. Whoever has to know that work is done waits for it.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        """Raises NoThread."""
        self._name = name
        self._threads_max = threads_max
        self._given: SimpleQueue[_Work | None] = SimpleQueue()
        """None, behind all work: there is no more."""
        self._changing = threading.Lock()
        self._unfinished = 0
        self._threads: list[threading.Thread] = []
        self._is_shut_down = False
        try:
            self._add_thread()
        except RuntimeError as error:
            raise NoThread(errno.EAGAIN, f"cannot start a thread for {name}: {error}") from error

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises PoolClosed after `shutdown`."""
        future: Future[T] = Future()
        with self._changing:
            if self._is_shut_down:
                raise PoolClosed(f"{self._name} takes nothing more")
            self._given.put(_Work(future, partial(fn, *args, **kwargs)))
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, self._threads_max):
                with contextlib.suppress(RuntimeError):  # tried again with the next
                    self._add_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; what was given is still done, unless it is cancelled. May be called again."""
        with self._changing:
            self._is_shut_down = True
            if cancel_futures:
                self._cancel_given()
            self._given.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel_given(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                work = self._given.get_nowait()
                if work is not None:
                    work.future.cancel()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}_{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while (work := self._given.get()) is not None:
            work.run(self._on_finished)
            del work  # with what it holds
        self._given.put(None)  # for the next thread

    def _on_finished(self) -> None:
        with self._changing:
            self._unfinished -= 1


class _Work:
    """One call, and who waits for it."""

    __slots__ = ("_call", "future")

    def __init__(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self.future = future
        self._call = call

    def run(self, on_finished: Callable[[], None]) -> None:
        """Make the call, unless it was cancelled; `on_finished` right before whoever waits for it hears of it."""
        if not self.future.set_running_or_notify_cancel():
            on_finished()
            return
        try:
            result = self._call()
        except BaseException as error:
            on_finished()
            self.future.set_exception(error)
        else:
            on_finished()
            self.future.set_result(result)


class InlineThreads:
    """No threads at all: work is done at once, by whoever gives it. For tests and simulation."""

    def executor(self, name: str, threads_max: int) -> Executor:
        return InlineExecutor()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)


class InlineExecutor(Executor):
    """Does work when it is given, in the order in which it is given."""

    def __init__(self) -> None:
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises PoolClosed after `shutdown`, as real pools do."""
        if self._is_shut_down:
            raise PoolClosed("an executor that does its work at once takes nothing more")
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True
