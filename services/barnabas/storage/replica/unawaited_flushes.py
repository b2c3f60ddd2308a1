"""Syncs of a log that no append waits for: after flush.ms, and of finished segments when they are rolled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.kernel.kafka_values import LONG_MAX
from barnabas.kernel.threads import PoolClosed, start_in
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.directory_lane import DirectoryLane


class UnawaitedFlushes:
    """Owner of the timer of flush.ms, and of the one sync of finished segments that may run.

    `on_failed(error)` is called on the event loop when a sync failed and the log may not hold what it was told.
    """

    __slots__ = ("_flushes_finished", "_is_stopped", "_lane", "_log", "_name", "_on_failed", "_timer")

    def __init__(
        self, name: str, opened: PartitionLog, lane: DirectoryLane, on_failed: Callable[[BaseException], None]
    ) -> None:
        self._name = name
        self._log = opened
        self._lane = lane
        self._on_failed = on_failed
        self._timer: asyncio.TimerHandle | None = None
        self._flushes_finished = False
        self._is_stopped = False

    def on_append(self, flush_ms: int) -> None:
        """Something was appended under this setting."""
        if flush_ms < LONG_MAX and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(flush_ms / 1000, self._flush_in_time)
        if self._log.is_finished_segment_unflushed and not self._flushes_finished:
            self._flush_finished()

    def stop(self) -> None:
        """The partition is served no longer."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _flush_in_time(self) -> None:
        self._timer = None
        if self._log.unflushed_records and not self._is_stopped:
            start_in(self._lane.flush, self._log.flush).add_done_callback(self._on_flushed)

    def _on_flushed(self, future: asyncio.Future[int]) -> None:
        if self._is_over(future):
            return
        error = future.exception()
        if error is not None:
            self._on_failed(error)

    def _flush_finished(self) -> None:
        """On disk, a finished segment need not be checked after a crash."""
        self._flushes_finished = True
        start_in(self._lane.flush, self._log.flush_finished).add_done_callback(self._on_finished_flushed)

    def _on_finished_flushed(self, future: asyncio.Future[int]) -> None:
        self._flushes_finished = False
        if self._is_over(future):
            return
        error = future.exception()
        if error is None:
            if self._log.is_finished_segment_unflushed:
                self._flush_finished()  # another was rolled meanwhile
        elif self._log.is_trusted:
            self._lane.lines.warning(
                "a finished segment is not on disk yet", partition=self._name, reason=str(error)
            )
        else:
            self._on_failed(error)

    def _is_over(self, future: asyncio.Future[int]) -> bool:
        """Whether it is nobody's business what became of a sync: the partition is not served any more."""
        return future.cancelled() or isinstance(future.exception(), PoolClosed) or self._is_stopped
