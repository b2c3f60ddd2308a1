"""How often and how long something was paused, running pauses included."""

from __future__ import annotations


class PauseTimes:
    """Owner of the counts. `now` is a time in seconds that never goes back, the same clock in all calls."""

    __slots__ = ("_ended_seconds", "_running_starts", "pauses", "running")

    def __init__(self) -> None:
        self.pauses = 0
        """Pauses that have begun."""
        self.running = 0
        """Pauses that have not ended."""
        self._ended_seconds = 0.0
        self._running_starts = 0.0
        """The sum of the starts of the running ones: their time is then known without looking at each."""

    def start(self, now: float) -> float:
        """One begins; returns its start, which `end` is to be given."""
        self.pauses += 1
        self.running += 1
        self._running_starts += now
        return now

    def end(self, started: float, now: float) -> None:
        """One ends."""
        self.running -= 1
        self._running_starts -= started
        self._ended_seconds += now - started

    def seconds(self, now: float) -> float:
        """All pauses together, up to now."""
        return max(0.0, self._ended_seconds + self.running * now - self._running_starts)
