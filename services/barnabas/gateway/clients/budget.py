"""How many bytes of requests the whole gateway holds: the backpressure that reaches every socket.

Each storage node has a share of it (`node_share_bytes`), so that one that does not answer cannot take the whole: over
its share a request is refused, and the connections that write to it are not read (`held.py`) while others go on.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.gateway import limits
from barnabas.gateway.clients.mid_frame import MidFrameLine
from barnabas.links.limits import UNANSWERED_BYTES_MAX


def node_share_bytes(budget_bytes: int) -> int:
    """What may wait for one storage node of a budget of `budget_bytes` (0 or less: no limit)."""
    if budget_bytes <= 0:
        return UNANSWERED_BYTES_MAX
    return budget_bytes // limits.NODE_ONE_PART_IN


class RefusalPace:
    """Owns the time until which refused records use up what the gateway spends on them, whoever sent them.

    To read records and refuse them costs as much as to pass them on: of many producers that do not back off each is
    told so late that all together send REFUSED_BYTES_PER_SECOND.
    """

    def __init__(self) -> None:
        self._free_at = 0.0

    def pause_seconds(self, size_bytes: int, now: float) -> float:
        """How long to wait before a request of this size is refused; `now` is in seconds of a monotonic clock."""
        free_at = max(self._free_at, now)
        self._free_at = min(
            free_at + size_bytes / limits.REFUSED_BYTES_PER_SECOND, now + limits.REFUSAL_PACE_SECONDS_MAX
        )
        return free_at - now


def _nothing() -> None:
    """Nobody reads sockets yet."""


class ByteBudget:
    """Owns the count of bytes that came from clients and are not answered yet, and of what answering them takes.

    Over `bytes_max` the connections stop reading; `on_room` is called when it falls below again. As in Kafka, 0 or
    less is no limit.
    """

    def __init__(self, bytes_max: int, on_room: Callable[[], None] = _nothing) -> None:
        self.bytes_max = bytes_max
        self.on_room = on_room
        self.used_bytes = 0
        self.mid_frame = MidFrameLine(lambda: self.is_exhausted, lambda: self.is_far_exceeded)
        """Who may bring the rest of a frame over `bytes_max`."""

    @property
    def is_exhausted(self) -> bool:
        return 0 < self.bytes_max < self.used_bytes

    @property
    def is_far_exceeded(self) -> bool:
        return 0 < self.bytes_max * limits.MID_FRAME_BUDGETS_MAX < self.used_bytes

    def take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        was_exhausted = self.is_exhausted
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if was_exhausted and not self.is_exhausted:
            self.on_room()
