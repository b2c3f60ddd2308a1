"""When a partition's log is read again after a failure, and how long requests wait for the first time that succeeds."""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.runtime.log_errors import NOT_OPENED_YET, NOT_TAKEN, PASSING
from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import KafkaError


class LoadTimes:
    """Owner of the pauses between loads of one partition since it was taken over, and of the wait for the first."""

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        """`wait_ms` is coordinator.load.wait.ms."""
        self._clock = clock
        self._wait_seconds = wait_ms / 1000
        self._taken_over_at = clock.monotonic()
        self._is_first_over = asyncio.Event()
        self._leader: tuple[int, int] | None = None
        self._leader_changed = asyncio.Event()
        self._pause_ms = limits.LOAD_RETRY_MS_MIN
        self._pause_ms_max = limits.LOAD_RETRY_MS_MAX

    @property
    def is_early(self) -> bool:
        """Whether requests that came when the partition was taken over may wait yet."""
        return self._clock.monotonic() - self._taken_over_at < self._wait_seconds

    @property
    def is_first_awaited(self) -> bool:
        """Whether requests wait for the first load."""
        return not self._is_first_over.is_set()

    async def wait_for_first(self) -> None:
        """Wait for the first load, or until it is given up, coordinator.load.wait.ms at most."""
        if self.is_first_awaited:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_seconds):
                    await self._is_first_over.wait()

    def end_wait(self) -> None:
        """It is loaded, or is not to be: nobody waits from here on."""
        self._is_first_over.set()

    def on_failed(self, error: KafkaError | UnreadableRecord) -> None:
        """The log could not be read, or be written once it was. Requests wait on where its node is about to open it, or
        another node may soon lead it: of a broker that died others take over what it owned and what it led, in either
        order.
        """
        self._pause_ms_max = limits.LOAD_RETRY_MS_MAX
        if not isinstance(error, UnreadableRecord):
            if error.code in NOT_TAKEN:
                self._pause_ms_max = limits.APPEND_RETRY_MS_MAX  # as the writes of a partition that is loaded
            may_pass_soon = error.code in PASSING - NOT_TAKEN and self.is_early
            if may_pass_soon or error.code in NOT_OPENED_YET:
                return
        self.end_wait()

    def on_leader(self, leader: int, leader_epoch: int) -> None:
        """Who leads the log: if it is another than before, what could not be read may be read now."""
        if (leader, leader_epoch) != self._leader:
            self._leader = leader, leader_epoch
            self._leader_changed.set()

    def begin(self) -> None:
        """The log is about to be read."""
        self._leader_changed.clear()

    def on_loaded(self) -> None:
        """The next failure is a first one again."""
        self._pause_ms = limits.LOAD_RETRY_MS_MIN

    async def pause(self) -> None:
        """Pause before the next load, but not for longer than until the log has another leader than when the last one
        began.
        """
        try:
            async with asyncio.timeout(min(self._pause_ms, self._pause_ms_max) / 1000):
                await self._leader_changed.wait()
        except TimeoutError:
            is_awaited = self.is_early and not self._is_first_over.is_set()
            pause_ms_max = limits.EARLY_LOAD_RETRY_MS_MAX if is_awaited else self._pause_ms_max
            self._pause_ms = min(self._pause_ms * 2, pause_ms_max)
        else:
            self._pause_ms = limits.LOAD_RETRY_MS_MIN
