"""Group commit: appends that must be durable share one sync of the log.

One sync of a log runs at a time, in a thread. What is appended meanwhile waits for the next one, which starts as
soon as the first ends; so however many appends wait, each waits for at most two syncs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

from barnabas.kernel.threads import PoolClosed, start_in


class Syncable(Protocol):
    """What a group commit needs of a log."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    def flush(self) -> object: ...


class GroupCommit:
    """Owner of the syncs of one log.

    `on_synced(offset)` is called on the event loop once everything before `offset` is durable, `on_failed(error)`
    when a sync failed, or could not even begin: then nothing that waited may be acknowledged. Once the node has closed
    its threads neither is: what waits for a sync stays unacknowledged, and so does what follows it.
    """

    __slots__ = ("_executor", "_log", "_on_failed", "_on_synced", "_wanted", "is_pending")

    def __init__(
        self,
        log: Syncable,
        executor: Executor,
        on_synced: Callable[[int], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._executor = executor
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._wanted = -1
        self.is_pending = False
        """Whether a sync runs, which appends wait for."""

    def is_waiting_for(self, offset: int) -> bool:
        """Whether a sync was asked for that covers what stands before `offset`, and has not ended."""
        return self.is_pending and self._log.recovery_point < offset <= self._wanted

    def request(self) -> None:
        """Make what the log holds now durable."""
        self._wanted = self._log.log_end_offset
        if not self.is_pending:
            self._start()

    def _start(self) -> None:
        self.is_pending = True
        offset = (
            self._log.log_end_offset
        )  # before it begins: what is appended meanwhile may come too late for it
        start_in(self._executor, self._log.flush).add_done_callback(partial(self._on_done, offset))

    def _on_done(self, offset: int, future: asyncio.Future[object]) -> None:
        if future.cancelled() or isinstance(error := future.exception(), PoolClosed):
            return
        self.is_pending = False
        if error is not None:
            self._on_failed(error)
            return
        if self._wanted > offset:
            self._start()
        self._on_synced(offset)
