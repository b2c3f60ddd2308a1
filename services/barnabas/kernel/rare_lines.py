"""Lines of the log about what fails again and again: told at once, then ever more rarely, with their number.

A service that is away, or a disk, fails every request that needs it. One line each would hide what else the log says,
and cost more than the requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from barnabas.kernel.logs import StructuredLogger

PAUSE_SECONDS_MIN: Final = 10.0
PAUSE_SECONDS_MAX: Final = 600.0
"""Pauses between two lines while it goes on; each is twice as long as the one before."""

OVER_SECONDS: Final = 60.0
"""Once nothing has failed for so long it is over: what fails then is told at once."""

SUBJECTS_MAX: Final = 1_000
"""Subjects that are kept apart; beyond that all are told anew."""


class _Told:
    """What was said of one subject."""

    __slots__ = ("failed_at", "pause", "said_at", "unsaid")

    def __init__(self, now: float) -> None:
        self.failed_at = self.said_at = now
        self.pause = PAUSE_SECONDS_MIN
        self.unsaid = 0


class RareLines:
    """Owner of when each line was written last. A subject is an event and what it is about. For any thread."""

    def __init__(self, logger: StructuredLogger, now: Callable[[], float]) -> None:
        """`now` in seconds, from any beginning."""
        self._logger = logger
        self._now = now
        self._told: dict[tuple[str, str], _Told] = {}
        self._lock = threading.Lock()

    def info(self, event: str, about: str = "", **fields: object) -> None:
        """As `warning`, for what may be no failure."""
        times = self._times(event, about)
        if times:
            self._logger.info(event, **fields, times=times)

    def warning(self, event: str, about: str = "", **fields: object) -> None:
        """Something failed; `about` tells apart what is told apart."""
        times = self._times(event, about)
        if times:
            self._logger.warning(event, **fields, times=times)

    def error(self, event: str, about: str = "", **fields: object) -> None:
        """As `warning`, for what somebody has to mend."""
        times = self._times(event, about)
        if times:
            self._logger.error(event, **fields, times=times)

    def _times(self, event: str, about: str) -> int:
        """How often it failed since the last line, this time included; 0 when it is too early for another."""
        now = self._now()
        with self._lock:
            told = self._told.get((event, about))
            if told is None or now - told.failed_at >= OVER_SECONDS:
                if len(self._told) >= SUBJECTS_MAX:
                    self._told.clear()
                self._told[event, about] = _Told(now)
                return 1
            told.failed_at = now
            told.unsaid += 1
            if now - told.said_at < told.pause:
                return 0
            told.said_at, told.pause = now, min(2 * told.pause, PAUSE_SECONDS_MAX)
            times, told.unsaid = told.unsaid, 0
            return times
