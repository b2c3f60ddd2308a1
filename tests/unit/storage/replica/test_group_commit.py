"""Syncs that appends share: who waits for which, and what becomes of it when the node stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from barnabas.kernel.threads import PoolClosed
from barnabas.storage.replica.group_commit import GroupCommit


class ByHand(Executor):
    """Runs what it was given when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.refuses: Exception | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.refuses is not None:
            raise self.refuses
        future: Future[Any] = Future()
        self.given.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_one(self) -> None:
        future, work = self.given.pop(0)
        future.set_result(work())


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset = 0
        self.recovery_point = 0

    def flush(self) -> None:
        self.recovery_point = self.log_end_offset


class Commits:
    """A log's group commit, and what it told."""

    def __init__(self) -> None:
        self.log, self.threads = FakeLog(), ByHand()
        self.synced: list[tuple[int, bool]] = []
        """(up to where, whether a sync was pending then)."""
        self.failed: list[BaseException] = []
        self.commit = GroupCommit(self.log, self.threads, self._on_synced, self.failed.append)

    def _on_synced(self, offset: int) -> None:
        self.synced.append((offset, self.commit.is_pending))

    def append(self, end_offset: int) -> None:
        self.log.log_end_offset = end_offset
        self.commit.request()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_appended_during_a_sync_gets_one_of_its_own() -> None:
    """The one that runs may have passed its bytes already, whatever the log says when it ends."""
    commits = Commits()
    commits.append(1)
    for end_offset in (2, 3):
        commits.append(end_offset)
    assert len(commits.threads.given) == 1
    commits.threads.run_one()
    await settle()
    assert commits.synced == [(1, True)], "what follows is not acknowledged with it"
    assert commits.commit.is_waiting_for(3) is False, "the fake syncs all there is"
    assert len(commits.threads.given) == 1
    commits.threads.run_one()
    await settle()
    assert commits.synced == [(1, True), (3, False)]
    assert commits.threads.given == []


async def test_what_is_durable_is_told_though_no_further_sync_can_begin() -> None:
    """The node stops: its threads take nothing more."""
    commits = Commits()
    commits.append(1)
    commits.append(2)
    commits.threads.refuses = PoolClosed()
    commits.threads.run_one()
    await settle()
    assert commits.synced == [(1, True)], "and what is not durable still waits"
    assert commits.failed == []
    assert commits.threads.given == []
    assert commits.commit.is_pending, "or what follows would be acknowledged"


async def test_a_sync_that_cannot_begin_has_failed() -> None:
    """Who waits for it would wait for ever."""
    commits = Commits()
    commits.threads.refuses = RuntimeError("can't start new thread")
    commits.append(1)
    assert commits.failed == [], "not before the append is over"
    await settle()
    assert commits.failed == [commits.threads.refuses]
    assert commits.synced == []


async def test_what_waited_for_a_sync_that_was_taken_back_stays_unacknowledged() -> None:
    """The node stops, and cancels what its threads have not begun."""
    commits = Commits()
    commits.append(1)
    ((future, _),) = commits.threads.given
    future.cancel()
    await settle()
    assert (commits.synced, commits.failed, commits.commit.is_pending) == ([], [], True)
