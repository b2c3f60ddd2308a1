"""Threads as an argument: a service names the pools that it needs, its environment makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(Protocol):
    """Where work that may block is done."""

    def executor(self, name: str, threads_max: int) -> Executor:
        """A pool of its own, whose threads are called `name`; the caller shuts it down."""
        ...

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do one piece of work in a pool that all share, and return what it returns."""
        ...


class SystemThreads:
    """Threads of this process."""

    def executor(self, name: str, threads_max: int) -> Executor:
        return ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **kwargs)


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
        """Raises RuntimeError after `shutdown`, as real pools do."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True
