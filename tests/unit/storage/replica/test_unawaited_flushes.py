"""Syncs that nobody waits for: what becomes of the append behind which they begin."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.kernel.threads import InlineExecutor, PoolClosed
from barnabas.storage.replica.unawaited_flushes import UnawaitedFlushes


class Refusing(Executor):
    """Takes nothing, for the `reason` given, until it has none."""

    def __init__(self, reason: Exception) -> None:
        self.reason: Exception | None = reason
        self._taking = InlineExecutor()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.reason is not None:
            raise self.reason
        return self._taking.submit(fn, *args, **kwargs)


class RolledLog:
    """A log that has a finished segment to be synced."""

    is_trusted = True
    is_finished_segment_unflushed = True

    def flush_finished(self) -> int:
        self.is_finished_segment_unflushed = False
        return 1


@pytest.mark.parametrize(
    ("reason", "lines"), [(RuntimeError("can't start new thread"), 1), (PoolClosed("the node stops"), 0)]
)
async def test_a_finished_segment_is_synced_later_where_it_cannot_be_now(
    reason: Exception, lines: int
) -> None:
    """The append that rolled is in the log: nothing may fail any more."""
    warned: list[str] = []
    pool, log = Refusing(reason), RolledLog()
    lane: Any = SimpleNamespace(
        flush=pool, lines=SimpleNamespace(warning=lambda event, **_: warned.append(event))
    )
    failed: list[BaseException] = []
    opened: Any = log
    flushes = UnawaitedFlushes("events-0", opened, lane, failed.append)
    flushes.on_append(flush_ms=1 << 63)
    await asyncio.sleep(0)
    assert (log.is_finished_segment_unflushed, len(warned), failed) == (True, lines, [])
    pool.reason = None
    flushes.on_append(flush_ms=1 << 63)
    await asyncio.sleep(0)
    assert not log.is_finished_segment_unflushed
