"""How fast moves between log directories copy: `replica.alter.log.dirs.io.max.bytes.per.second`, for all of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.storage import limits
from barnabas.storage.replica.replication_quota import ReplicationQuota


class Pace:
    """Owner of how many bytes were copied ahead of the rate, which `rate` says: bytes a second, as of now."""

    def __init__(self, rate: Callable[[], float], copied: ReplicationQuota) -> None:
        """`copied` measures what is copied."""
        self._rate = rate
        self._copied = copied
        self._ahead_bytes = 0.0
        self._at = 0.0

    def step_bytes(self) -> int:
        """How much to copy next, so that no step is worth more than a second."""
        return max(1, int(min(limits.MOVE_STEP_BYTES_MAX, self._rate())))

    def on_copied(self, size_bytes: int) -> None:
        """So much was copied."""
        self._settle()
        self._ahead_bytes += size_bytes
        self._copied.record(size_bytes, self._at * 1000)

    def copied_rate(self) -> float:
        """Bytes a second that were copied of late."""
        return self._copied.rate(asyncio.get_running_loop().time() * 1000)

    def seconds_ahead(self) -> float:
        """How long to wait before more is copied; ask again after MOVE_PACE_SECONDS_MAX, for the rate may change."""
        self._settle()
        # A rate of 0 is one, too: nothing more is copied until there is another.
        return min(self._ahead_bytes / max(1, self._rate()), limits.MOVE_PACE_SECONDS_MAX)

    def _settle(self) -> None:
        now = asyncio.get_running_loop().time()
        self._ahead_bytes = max(0.0, self._ahead_bytes - (now - self._at) * self._rate())
        self._at = now
