"""When the files with offsets by partition are written: where they are to say something else than they do."""

from __future__ import annotations

import os
from collections.abc import Mapping

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey, write_offsets


class OffsetFiles:
    """Owner of what this process has written into the files of one log directory."""

    def __init__(self, files: Files, path: str) -> None:
        """`path` is the log directory's."""
        self._files = files
        self._path = path
        self._written: dict[str, dict[PartitionKey, int]] = {}
        """By the file's name; nothing of one that may not be on the disk as it was meant."""

    def forget(self) -> None:
        """Have each written again: for what is to be there although somebody else may have removed it."""
        self._written.clear()

    def write(self, name: str, offsets: Mapping[PartitionKey, int]) -> None:
        """Have the file `name` say `offsets`, durable. Raises OSError.

        Where it says so already, nothing is done: thousands of partitions with nothing new cost a comparison.
        """
        given = dict(offsets)
        if self._written.get(name) == given:
            return
        self._written.pop(name, None)  # a failure leaves open what is on the disk
        write_offsets(self._files, os.path.join(self._path, name), given)
        self._written[name] = given
