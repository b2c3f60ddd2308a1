"""What all parts of a partition's log share: where its segments are, where it begins and ends."""

from __future__ import annotations

import threading

from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.log_slice import Truncations
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.segments.segment import Segment
from barnabas.log.segments.segment_factory import SegmentFactory

LogEnd = tuple[int, Segment, int, int]
"""(log end offset, active segment, its bytes, truncations up to then): one tuple, so that they always agree."""


class LogState:
    """Owner of the list of segments, the log's start and its end.

    Readers take no lock: they see the segments and the end as tuples, which are replaced whole. The end changes by
    whoever holds the lock of the end (`Locks`), the segments and the start under `publishing` as well.
    """

    __slots__ = (
        "directory",
        "directory_is_dirty",
        "end",
        "epochs",
        "factory",
        "files",
        "log_start_offset",
        "publishing",
        "segments",
        "truncations",
    )

    def __init__(
        self, directory: str, factory: SegmentFactory, epochs: LeaderEpochCache, loaded: LoadedLog
    ) -> None:
        self.directory = directory
        self.files = factory.files
        self.factory = factory
        self.epochs = epochs
        self.segments = loaded.segments
        """All of them, the active one last."""
        self.truncations = Truncations()
        self.end: LogEnd = (loaded.log_end_offset, loaded.segments[-1], loaded.segments[-1].size, 0)
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read."""
        self.directory_is_dirty = True
        """Whether a name came or went that the disk may not know of."""
        self.publishing = threading.Lock()
        """Held over a few assignments, never over the disk."""

    def start_at(self, offset: int) -> None:
        """Whatever is before `offset` is gone; with `publishing` held."""
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
