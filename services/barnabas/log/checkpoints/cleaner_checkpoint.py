"""`cleaner-offset-checkpoint`: up to where each log of a directory is compacted."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    PartitionKey,
    read_offsets,
    write_offsets,
)
from barnabas.log.checkpoints.partition_metadata import directory_name


class CleanerCheckpoint:
    """Owner of the file of one log directory."""

    def __init__(self, files: Files, path: str) -> None:
        """`path` is the log directory's. Raises OSError and LogStoreError."""
        self._files = files
        self._path = path
        self.offsets = read_offsets(files, os.path.join(path, CLEANER_OFFSET_FILE))
        self._is_outdated = False

    def adopt(self, key: PartitionKey, offset: int) -> None:
        """The file that is written next says this of a partition."""
        self.offsets[key] = offset
        self._is_outdated = True

    def write(self, opened: Mapping[PartitionKey, int], expected: Container[PartitionKey]) -> None:
        """Write what has changed, durable; `opened`: of each log that is open how far it is compacted, -1 for one that
        never was. A partition that is on disk but not open, or is `expected` to be, keeps what the file said. Raises
        OSError.
        """
        on_disk = set(self._files.listdir(self._path)) if self.offsets else set()
        offsets = {
            key: at
            for key, at in self.offsets.items()
            if opened.get(key, 0) >= 0 and (directory_name(*key) in on_disk or key in expected)
        }
        offsets |= {key: at for key, at in opened.items() if at >= 0}
        if offsets != self.offsets or self._is_outdated:
            write_offsets(self._files, os.path.join(self._path, CLEANER_OFFSET_FILE), offsets)
            self.offsets, self._is_outdated = offsets, False
