"""Pools of threads: they take all work, do it in order, and keep no process from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from barnabas.kernel.threads import NoThread, PoolClosed, ThreadPool, start_in


class Machine:
    """Grants threads, or none."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.grants = True
        start = threading.Thread.start

        def start_if_granted(thread: threading.Thread) -> None:
            if not self.grants:
                raise RuntimeError("can't start new thread")
            start(thread)

        patch.setattr(threading.Thread, "start", start_if_granted)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def pool(machine: Machine) -> Iterator[ThreadPool]:
    with ThreadPool("pool", 3) as made:
        yield made


def test_what_finds_no_thread_waits_for_one(pool: ThreadPool, machine: Machine) -> None:
    machine.grants = False
    may_end = threading.Event()
    first = pool.submit(may_end.wait)
    second = pool.submit(threading.get_ident)
    assert not second.done()
    may_end.set()
    assert first.result() is True
    assert second.result(timeout=60)
    machine.grants = True
    together = threading.Barrier(3, timeout=60)
    assert {each.result() for each in [pool.submit(together.wait) for _ in range(3)]} == {0, 1, 2}


def test_a_pool_without_a_thread_is_none(machine: Machine) -> None:
    machine.grants = False
    with pytest.raises(NoThread, match="cannot start a thread"):
        ThreadPool("pool", 1)


def test_one_thread_works_in_order_and_tells_what_failed() -> None:
    done: list[int] = []
    with ThreadPool("pool", 1) as pool:
        futures = [pool.submit(done.append, number) for number in range(100)]
        failing = pool.submit(lambda: 1 // 0)
    assert done == list(range(100))
    assert all(future.done() for future in futures), "the end of the context waits for them"
    assert isinstance(failing.exception(), ZeroDivisionError)


def test_no_more_threads_than_are_needed() -> None:
    with ThreadPool("pool", 3) as pool:
        assert len({pool.submit(threading.get_ident).result() for _ in range(50)}) == 1


@pytest.mark.parametrize("cancels", [False, True])
def test_a_pool_that_is_shut_down_takes_nothing_more(cancels: bool) -> None:
    pool = ThreadPool("pool", 1)
    may_end, began = threading.Event(), threading.Event()
    running = pool.submit(lambda: began.set() or may_end.wait())
    waiting = pool.submit(threading.get_ident)
    began.wait()
    pool.shutdown(wait=False, cancel_futures=cancels)
    with pytest.raises(PoolClosed):
        pool.submit(threading.get_ident)
    may_end.set()
    pool.shutdown()
    assert running.result() is True
    if cancels:
        with pytest.raises(CancelledError):
            waiting.result()
    else:
        assert waiting.result()


async def test_what_cannot_be_begun_is_told_by_its_future(pool: ThreadPool) -> None:
    assert await start_in(pool, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await start_in(pool, lambda: 1 // 0)
    pool.shutdown()
    future = start_in(pool, lambda: 7)
    with pytest.raises(PoolClosed):
        await future


HELD = """
import asyncio, threading
from barnabas.kernel.threads import SystemThreads

async def main():
    threads, never = SystemThreads(), threading.Event()
    for begin in (threads.executor("disk", 1).submit, lambda work: asyncio.create_task(threads.run(work))):
        began = threading.Event()
        begin(lambda began=began: began.set() or never.wait())
        while not began.is_set():
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


def test_a_thread_that_never_returns_keeps_no_process_from_ending() -> None:
    assert subprocess.run([sys.executable, "-c", HELD], timeout=60, check=False).returncode == 0
