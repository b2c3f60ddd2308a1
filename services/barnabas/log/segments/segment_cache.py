"""How many finished segments stay open: a least-recently-used list with a limit.

Active segments hold one descriptor each and are not counted; every other segment is opened when it is read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

OPEN_SEGMENTS_MAX = 256
"""Finished segments of one log directory that stay open, with one descriptor and their indexes in memory each."""


class Releasable(Protocol):
    """What the cache closes."""

    @property
    def directory(self) -> str:
        """That of its log."""
        ...

    def evict(self) -> None:
        """Release it, unless it is to stay open. Called with the cache's lock."""
        ...

    def release(self) -> None: ...


class SegmentCache:
    """Owner of the order in which finished segments were used."""

    def __init__(self, segments_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.segments_max = segments_max
        self._used: OrderedDict[int, Releasable] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._used)

    def touch(self, segment: Releasable) -> None:
        """`segment` is in use; the one unused for longest may be released for it."""
        key = id(segment)
        with self._lock:
            self._used[key] = segment
            self._used.move_to_end(key)
            while len(self._used) > self.segments_max:
                _, old = self._used.popitem(last=False)
                # With the lock: who calls `forget` knows afterwards that nobody is about to release it.
                old.evict()

    def forget(self, segment: Releasable) -> None:
        """`segment` is released by others, or has become active; it is released by nobody here from now on."""
        with self._lock:
            self._used.pop(id(segment), None)

    def forget_log(self, directory: str) -> None:
        """Release all segments of a log: it could not be opened, and nobody else knows of them."""
        with self._lock:
            keys = [key for key, segment in self._used.items() if segment.directory == directory]
            released = [self._used.pop(key) for key in keys]
        for segment in released:
            segment.release()
