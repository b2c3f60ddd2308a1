"""How often the disk of one log directory, or one log in it, has refused to write, and what follows from that. Pure: no
I/O, no clock.

Once is a hitch. A disk that refuses again and again is full, or broken, and nobody knows for how long. So the directory
is *given up*: what is in it shall be led by others, where others can. It is taken back when nothing was refused for a
while and a probe could be written; a longer while if it was taken back only a moment before, so that nothing flaps
where a little room comes and goes.

So it is with a log that cannot be written although its disk can (`RefusingLog`), which is given up alone.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from barnabas.storage import limits

NEVER: Final = float("-inf")


class DiskRefusals:
    """Owner of whether one log directory, or one log, is given up. Times are in seconds, of whatever clock that only
    goes on.
    """

    __slots__ = (
        "_counted",
        "_given_up_at",
        "_last_at",
        "_quiet_seconds",
        "_seconds_max",
        "_taken_back_at",
        "is_given_up",
        "is_handed_over",
    )

    def __init__(self, seconds_max: float = limits.REFUSALS_SECONDS_MAX) -> None:
        """REFUSALS_MIN within `seconds_max` are enough."""
        self.is_given_up = False
        self.is_handed_over = False
        """Whether the controller may hear of it: others have had a moment for what was acknowledged."""
        self._seconds_max = seconds_max
        self._counted: deque[float] = deque(maxlen=limits.REFUSALS_MIN)
        """When the last ones came, but for those that came together with another."""
        self._last_at = NEVER
        self._given_up_at = NEVER
        self._taken_back_at = NEVER
        self._quiet_seconds = limits.QUIET_SECONDS_MIN

    def on_refusal(self, now: float) -> bool:
        """The disk has refused an append; whether the directory is given up by that."""
        self._last_at = now
        counted = self._counted
        if self.is_given_up or (counted and now - counted[-1] < limits.REFUSAL_APART_SECONDS):
            return False
        counted.append(now)
        if len(counted) < limits.REFUSALS_MIN or now - counted[0] > self._seconds_max:
            return False
        is_soon = now - self._taken_back_at < limits.QUIET_SECONDS_MAX
        longer = min(2 * self._quiet_seconds, limits.QUIET_SECONDS_MAX)
        self._quiet_seconds = longer if is_soon else limits.QUIET_SECONDS_MIN
        self.is_given_up, self._given_up_at = True, now
        return True

    def on_success(self) -> None:
        """Where only refusals in a row count: something was written. What is given up is taken back by a probe only."""
        if not self.is_given_up:
            self._counted.clear()

    def is_quiet(self, now: float) -> bool:
        """Whether nothing was refused for so long that a probe is to say how the disk is."""
        return self.is_given_up and now - self._last_at >= self._quiet_seconds

    def on_probe(self, now: float) -> bool:
        """A probe could be written; whether the directory is taken back by that."""
        if not self.is_quiet(now):
            return False  # meanwhile something else was refused
        self.is_given_up, self.is_handed_over, self._taken_back_at = False, False, now
        self._counted.clear()
        return True

    def hands_over(self, now: float) -> bool:
        """Whether it was given up so short a time ago that others are about to lead what is in it."""
        return self.is_given_up and now - self._given_up_at < limits.HAND_OVER_REFUSAL_SECONDS_MAX
