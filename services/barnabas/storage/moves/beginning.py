"""Whether a change of places may begin: asked in the mover's thread, and prevented on the event loop."""

from __future__ import annotations

import threading


class Beginning:
    """Owner of whether one change of places has begun, or never will. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_begun: bool | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._has_begun)

    def begin(self) -> bool:
        """Begin, unless that was prevented; returns whether it was not."""
        return self._decide(has_begun=True)

    def prevent(self) -> bool:
        """Have it never begin, unless it has; returns whether it has not."""
        return not self._decide(has_begun=False)

    def _decide(self, *, has_begun: bool) -> bool:
        with self._lock:
            if self._has_begun is None:
                self._has_begun = has_begun
            return self._has_begun
