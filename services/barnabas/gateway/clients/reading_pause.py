"""Whether a connection's socket is read; if it is not, why and since when."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from barnabas.gateway.clients.held import Reason
from barnabas.kernel.pauses import PauseTimes


class ReadingPause:
    """Owner of that, for one connection. What follows from it goes by the event loop's time; the metrics count it by
    `perf_counter`, as they do everything.
    """

    __slots__ = ("_counted_since", "_pauses", "_since", "reason")

    def __init__(self, pauses: Mapping[Reason, PauseTimes]) -> None:
        self.reason: Reason | None = None
        """Why the socket is not read; None while it is."""
        self._pauses = pauses
        self._since = self._counted_since = 0.0

    def change(self, reason: Reason | None, now: float) -> float:
        """From `now` on, by the event loop's time, it is not read for `reason`, or read again.

        Returns for how many seconds it was not read for the reason before.
        """
        seconds, counted = 0.0, perf_counter()
        if self.reason is not None:
            self._pauses[self.reason].end(self._counted_since, counted)
            seconds = now - self._since
        self.reason = reason
        if reason is not None:
            self._counted_since = self._pauses[reason].start(counted)
            self._since = now
        return seconds
