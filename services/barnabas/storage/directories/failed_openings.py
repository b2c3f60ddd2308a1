"""Logs of one directory that could not be opened although nothing is wrong with them.

There was no descriptor left, or no room, or the disk did not answer a read: what the log holds is in no doubt. So it is
tried again, after a pause that grows, and at once when the metadata speaks of its partition. A log whose data may not
be what it seems (a sync failed, a file is damaged) stays as it is until somebody has looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.log.small_files import SyncError
from barnabas.storage import limits
from barnabas.storage.directories.errors import LogLost

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

log = get_logger("storage.failed_openings")


def is_for_now(error: Exception) -> bool:
    """Whether what could not be opened for this reason may be opened later: the disk refused, and left all in place; or
    it is gone, and may be brought back, or another replica comes to lead.
    """
    cause = error.__cause__
    if isinstance(error, LogLost):
        return True
    return isinstance(error, KafkaError) and isinstance(cause, OSError) and not isinstance(cause, SyncError)


class FailedOpenings:
    """Owner of which logs of a directory are to be tried again, and when. For the event loop."""

    def __init__(self, log_dir: str, clock: Clock) -> None:
        self.ready: dict[Replica, None] = {}
        """Those whose time has come: whoever opens one takes it out."""
        self._log_dir = log_dir
        self._clock = clock
        self._due: dict[Replica, float] = {}
        """When each of the others is to be ready, in seconds of the clock."""
        self._pauses: dict[Replica, float] = {}
        """The last pause of each in seconds, also of one that is being tried."""
        self._is_waiting = asyncio.Event()
        """Set while there is something in `_due`."""
        self._opened = 0
        """Logs that were opened since all were."""
        self._lines = RareLines(log, clock.monotonic)

    def add(self, replica: Replica, reason: str) -> None:
        """Its log could not be opened for now."""
        known = self._pauses.get(replica, 0.0)
        pause = min(max(2 * known, limits.REOPEN_SECONDS_MIN), limits.REOPEN_SECONDS_MAX)
        self._pauses[replica] = pause
        self._due[replica] = self._clock.monotonic() + pause
        self._is_waiting.set()
        self._lines.error(
            "cannot open logs, and tries again",
            log_dir=self._log_dir,
            logs=len(self._pauses),
            partition=replica.name,
            reason=reason,
        )

    def hasten(self, replica: Replica) -> None:
        """If it waits for its time, that has come."""
        if self._due.pop(replica, None) is not None:
            self.ready[replica] = None

    def on_opened(self, replica: Replica) -> None:
        """Its log is open."""
        if replica in self._pauses:
            self._opened += 1
            self.forget(replica)

    def forget(self, replica: Replica) -> None:
        """It is not to be tried again."""
        self.ready.pop(replica, None)
        self._due.pop(replica, None)
        if self._pauses.pop(replica, None) is not None and not self._pauses:
            log.info("no log waits to be opened any more", log_dir=self._log_dir, opened=self._opened)
            self._opened = 0

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Move to `ready` what is due, and say so, until cancelled."""
        while True:
            await self._is_waiting.wait()
            await self._clock.sleep(limits.REOPEN_SECONDS_MIN)
            now = self._clock.monotonic()
            for replica in [each for each, due in self._due.items() if due <= now]:
                self.hasten(replica)
            if not self._due:
                self._is_waiting.clear()
            if self.ready:
                on_ready()
