"""How long a service that died waits before it is started again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BackoffLimits:
    """Seconds: the first pause, the longest one, and how long a run must last to start over with the first."""

    first: float = 0.1
    longest: float = 5.0
    reset_after: float = 10.0

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.longest, "the first pause is the shortest"


class Backoff:
    """Doubles the pause with every short run. Owns the length of the next pause."""

    def __init__(self, limits: BackoffLimits) -> None:
        self._limits = limits
        self._next = limits.first

    def start_over(self) -> None:
        """The run that ended was no failure."""
        self._next = self._limits.first

    def pause_after(self, uptime_seconds: float) -> float:
        """Seconds to wait after a run that lasted `uptime_seconds`."""
        if uptime_seconds >= self._limits.reset_after:
            self._next = self._limits.first
        pause = self._next
        self._next = min(pause * 2, self._limits.longest)
        return pause
