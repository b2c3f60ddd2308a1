"""Partitions that are gone from where the node had them, and that nobody said are deleted.

Checkpoints name one with records that has no directory, or one vanished after the node had found it. Begun anew it
would be empty, and whoever led with that would have the others drop what they have.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.checkpoints.stray import is_unused
from barnabas.log.errors import storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.small_files import exists


class MissingPartitions:
    """Owner of which partitions of all log directories are missing, until they are open, deleted, or not asked for.

    What touches no disk may be called anywhere: each changes a set by one step.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._missing: set[PartitionKey] = set()
        self._new: set[PartitionKey] = set()
        """Those of which nothing can have been here, until they are open: what is missing had their name before."""

    @property
    def keys(self) -> Set[PartitionKey]:
        return self._missing

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """They were found to be missing."""
        self._missing.update(keys)

    def begin(self, key: PartitionKey) -> None:
        """A new topic has the name."""
        self._missing.discard(key)
        self._new.add(key)

    def forget(self, key: PartitionKey) -> None:
        """The partition is open, or deleted."""
        self._missing.discard(key)
        self._new.discard(key)

    def let_go(self, key: PartitionKey) -> None:
        """Nobody has it for a new one any more."""
        self._new.discard(key)

    def keep(self, keys: Iterable[PartitionKey]) -> None:
        """Nobody asks for the others."""
        self._missing.intersection_update(keys)

    def is_missing(self, home: LogDirectory, key: PartitionKey) -> bool:
        """Whether the partition, whose place is `home`, is missing: also where it was begun anew there in vain. From
        when it is seen to be on, it is until it is open. For a thread. Raises KAFKA_STORAGE_ERROR.
        """
        if key in self._new:
            return False
        if key not in self._missing:
            if home.is_lost(key):
                self._missing.add(key)
            return key in self._missing
        place = os.path.join(home.path, directory_name(*key))
        with storage_errors(home.path):
            return not exists(self._files, place) or is_unused(self._files, place)
